/** A group: how many devices it has made, what it has refused and why, and what can be changed. */
import { useMemo } from 'preact/hooks';
import { api, unwrap } from '../app/api.ts';
import { change, readOne } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { useLoad } from '../parts/data/load.ts';
import { NameLink, NameOf } from '../parts/data/names.tsx';
import { deletion } from '../parts/lists/deletions.ts';
import { EntityPart } from '../parts/lists/entity-page.tsx';
import { useVerbs, type Verb, VerbButtons, type Verbs } from '../parts/lists/verbs.tsx';
import { Facts, Page, Time, Waiting } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';
import { changesOf, limitFields, placeFields, valuesOf, withIssuer } from './group-fields.tsx';
import { enrolledIn, refusalsOf } from './group-lists.tsx';
import { StateBadge } from './groups.tsx';
import type { Group } from './read.ts';
import { Lines, SecretsDialog } from './secrets.tsx';

const words = texts.enrollment;

export function GroupPage({ id }: { id: string }) {
  const { data: group, error, reload } = useLoad(() => readOne('enrollmentGroup', id), [id], 5000);
  const { start, notes, dialog } = useVerbs(reload);
  const [refusals, enrolled] = useMemo(() => [refusalsOf(id), enrolledIn(id)], [id]);
  if (!group) return <Waiting title={words.one} error={error} trash="enrollment-groups" />;
  return (
    <Page title={group.name} actions={<VerbButtons verbs={verbsOf(group)} start={start} />}>
      {notes}
      <div class="stack">
        <About group={group} />
        <details class="panel">
          <summary>{words.tryIt}</summary>
          <p class="soft small">{words.secretStays}</p>
          <Lines group={group} />
        </details>
        <EntityPart of={refusals} heading={words.refusals} />
        <EntityPart of={enrolled} heading={words.made} />
      </div>
      {dialog}
    </Page>
  );
}

function verbsOf(group: Group): Verbs {
  const { proof, disabled } = group;
  if (!can('update', 'enrollmentGroup')) return [];
  const able = async () => {
    await change('enrollmentGroup', group, { disabled: !disabled });
  };
  return [
    editing(group),
    proof !== 'certificate' && {
      text: words.regenerate[proof],
      ask: { title: words.regenerateOf(group.name), says: words.regenerateSays },
      run: () => regenerate(group),
    },
    { text: disabled ? words.enable : words.disable, run: able },
    can('delete', 'enrollmentGroup') && deletion('enrollmentGroup', group, undefined, '/enrollment'),
  ];
}

function editing(group: Group): Verb {
  const form: Verb['form'] = {
    title: texts.verbOf(texts.edit, group.name),
    values: valuesOf(group),
    fields: (values) => [...placeFields(group.proof)(values), ...limitFields(values)],
    save: async (values) => {
      const changed = await change('enrollmentGroup', group, changesOf(await withIssuer(values)));
      return { next: changed.hookSecret === undefined ? undefined : showing(changed) };
    },
  };
  return { text: texts.edit, kind: 'primary', form };
}

async function regenerate({ id, version }: Group) {
  const params = { path: { id }, header: { etag: version } };
  const { enrollmentGroup } = await unwrap(api.POST('/api/v1/enrollment-groups/{id}/regenerate', { params }));
  return { said: '', next: showing(enrollmentGroup) };
}

/** Shows the secrets of an answer. */
function showing(group: Parameters<typeof SecretsDialog>[0]['group']): Verb {
  return { text: words.tryIt, dialog: (_, close) => <SecretsDialog group={group} onClose={close} /> };
}

function About({ group }: { group: Group }) {
  const { proof, issues, certificateAuthorityId, proofAuthorityId, maxDevices, validFrom, validUntil } = group;
  const under = (id: string | null | undefined, more = '') =>
    id && (
      <div class="small soft">
        <NameOf kind="certificateAuthority" id={id} />
        {more}
      </div>
    );
  return (
    <section class="panel about">
      <Facts
        kind="pairs"
        of={[
          [texts.state, <StateBadge group={group} />],
          [words.enrolled, words.enrolledOf(group.enrolledCount, maxDevices)],
          [words.proof, [words.proofs[proof], under(proofAuthorityId)]],
          [
            words.issues,
            [words.issued[issues], under(certificateAuthorityId, `, ${words.daysOf(group.certificateDays)}`)],
          ],
          [texts.product, <NameLink kind="deviceTemplate" id={group.deviceTemplateId} otherwise={texts.product} />],
          [texts.organization, <NameLink kind="organization" id={group.organizationId} />],
          [words.pattern, <code>{group.serialNumberPattern}</code>],
          validFrom !== null && [words.validFrom, <Time iso={validFrom} />],
          validUntil !== null && [texts.validUntil, <Time iso={validUntil} />],
          [words.reprovision, words.reprovisions[group.reprovision]],
          group.hookUrl !== null && [words.hookUrl, <code>{group.hookUrl}</code>],
        ]}
      />
    </section>
  );
}
