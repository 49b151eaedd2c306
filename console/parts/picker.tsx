/** Chooses one organization or product. Up to a thousand are listed. */

import { api, done } from '../app/api.js';
import { accountId } from '../app/session.js';
import { texts } from '../texts.js';
import { Select } from './form.js';
import { useLoad } from './load.js';

export async function readOrganizations() {
  const query = { accountId: accountId.value, pageSize: 1000, sortBy: 'name' } as const;
  return (await done(api.GET('/api/v1/organizations', { params: { query } }))).organizations.results ?? [];
}

export async function readProducts() {
  const query = { accountId: accountId.value, pageSize: 1000 };
  return (await done(api.GET('/api/v1/devices/templates', { params: { query } }))).deviceTemplates.results ?? [];
}

interface PickerProps {
  label: string;
  name?: string;
  value?: string | undefined;
  none?: string;
  onText?: (text: string) => void;
  kind: 'organization' | 'product';
}

export function Picker({ kind, none, ...select }: PickerProps) {
  const { data = [] } = useLoad<{ id: string; name: string }[]>(
    kind === 'organization' ? readOrganizations : readProducts,
    [kind],
  );
  const options = data.map(({ id, name }) => [id, name] as const);
  return (
    <Select
      {...select}
      options={[...(none === undefined ? [] : [['', none] as const]), ...options]}
      key={texts.language + options.length}
    />
  );
}
