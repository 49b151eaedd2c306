/** The whole files of packages, as rows and on the wire. */
import { Type } from 'typebox';
import type { Db } from '../../../db/registry/index.ts';
import { Nullable, type Row } from '../../../db/registry/records.ts';

export type FirmwarePackage = Row<'firmwarePackages'>;
export type FirmwareFile = Row<'firmwareFiles'>;

export const fileShape = Type.Object({
  name: Type.String(),
  revision: Type.String(),
  size: Type.Integer({ description: 'Bytes.' }),
  sha256: Type.String({ description: 'Hex.' }),
  signature: Nullable(Type.String({ description: 'Base64, as it was given.' })),
});

/** The whole files of packages, by package, in the order of their names. */
export async function filesOf(db: Db, packageIds: readonly string[]): Promise<Map<string, FirmwareFile[]>> {
  const files = new Map<string, FirmwareFile[]>();
  if (packageIds.length === 0) return files;
  const rows = db.selectFrom('firmwareFiles').selectAll().where('packageId', 'in', packageIds);
  for (const row of await rows.orderBy('packageId').orderBy('name').execute())
    files.set(row.packageId, [...(files.get(row.packageId) ?? []), row]);
  return files;
}
