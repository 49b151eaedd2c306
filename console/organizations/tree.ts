/** The organizations of a tree, read in slices: those first that were made first, or those whose name contains a text. */
import { api, unwrap } from '../app/api.ts';
import { type Entity, readList } from '../app/entities.ts';

export interface Organization {
  id: string;
  name: string;
  parentId: string | null;
  version: string;
  /** What is in it and below it. */
  counts?: Entity<'organization'>['counts'];
  onlineCount?: number;
}

const fields = 'name,parentId,version,counts,onlineCount';
const sliceSize = 1000;
/** Requests that one batch takes. */
const batchSize = 50;

/**
 * So many organizations and those above them, `more` being how many are not read. The ones above are read by themselves where
 * they are not among the first.
 */
export async function readTree(wanted: number, name: string, signal: AbortSignal) {
  const all = new Map<string, Organization>();
  let read = 0;
  let count = 0;
  for (let page = 1; read < wanted; page += 1) {
    const query = {
      pageSize: sliceSize,
      sortBy: 'created' as const,
      fields,
      counts: true,
      count: 'online',
      ...(name && { name }),
    };
    const { results = [], meta } = await readList('organization', page, query, signal);
    for (const one of results) all.set(one.id, one);
    read += results.length;
    count = meta?.count ?? 0;
    if (results.length < sliceSize) break;
  }
  await readAbove(all, signal);
  return { organizations: [...all.values()], more: count - read };
}

/** Adds the organizations above, level by level, as far as they are in reach. */
export async function readAbove(all: Map<string, Organization>, signal: AbortSignal): Promise<void> {
  const asked = new Set<string>();
  for (;;) {
    const missing = [...new Set([...all.values()].flatMap(({ parentId }) => parentId ?? []))].filter(
      (id) => !all.has(id) && !asked.has(id),
    );
    if (missing.length === 0) return;
    for (let from = 0; from < missing.length; from += batchSize) {
      const some = missing.slice(from, from + batchSize);
      for (const id of some) asked.add(id);
      const requests = some.map((id) => ({
        method: 'GET' as const,
        path: `/api/v1/organizations/${id}?counts=true&count=online`,
      }));
      const answers: unknown = await unwrap(api.POST('/api/v1/batch', { body: { requests }, signal }));
      for (const { organization } of answers as { organization?: Organization }[])
        if (organization) all.set(organization.id, organization);
    }
  }
}

/** The organizations below each, by name; those whose parent is out of reach are at the top, under the key null. */
export function branchesOf(all: readonly Organization[]): ReadonlyMap<string | null, Organization[]> {
  const known = new Set(all.map(({ id }) => id));
  const branches = new Map<string | null, Organization[]>();
  const byName = new Intl.Collator(undefined, { numeric: true });
  for (const one of [...all].sort((a, b) => byName.compare(a.name, b.name))) {
    const above = one.parentId !== null && known.has(one.parentId) ? one.parentId : null;
    const here = branches.get(above) ?? [];
    here.push(one);
    branches.set(above, here);
  }
  return branches;
}
