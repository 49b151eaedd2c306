/** Fleets: filters of devices that are kept under a name. Which devices match is never stored. */
import { Type } from 'typebox';
import { column, nameColumn, OptionalId, OptionalText } from './columns.ts';

export const fleetColumns = {
  name: nameColumn,
  description: column(OptionalText, { create: 'optional', change: true, bounds: { maxLength: 1000 } }),
  filter: column(Type.String(), {
    create: 'required',
    change: true,
    bounds: { maxLength: 4000, description: 'An expression: docs/filters.md.' },
  }),
  organizationId: column(OptionalId, {
    create: 'optional',
    body: OptionalText,
    filter: 'reference',
    keeps: 'organizations',
  }),
};
