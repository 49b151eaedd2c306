/** A group: how many devices it has made, what it has refused and why, and what can be changed. */
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import { Link, useLocation } from 'wouter-preact';
import { api, unwrap } from '../app/api.ts';
import { can } from '../app/session.ts';
import { Confirm, Dialog } from '../parts/dialog.tsx';
import { ActionButton, Form, type Values } from '../parts/form.tsx';
import { useLoad } from '../parts/load.ts';
import { NameOf } from '../parts/names.tsx';
import { Page, Time, Waiting } from '../parts/page.tsx';
import { failed, toast } from '../parts/toast.tsx';
import { texts } from '../texts.ts';
import { type Changes, changesOf, LimitFields, newAuthority, PlaceFields, valuesOf } from './group-fields.tsx';
import { Enrolled, Refusals } from './group-lists.tsx';
import { StateBadge } from './groups.tsx';
import { makeIssuer } from './new-authority.tsx';
import { type Group, readGroup } from './read.ts';
import { type GroupSecrets, Lines, SecretsDialog, secretsIn } from './secrets.tsx';

const words = texts.enrollment;
type Opened = 'edit' | 'regenerate';
const of = ({ id, version }: Group) => ({ path: { id }, header: { etag: version } });

export function GroupPage({ id }: { id: string }) {
  const [, go] = useLocation();
  const { data: group, error, reload } = useLoad(() => readGroup(id), [id], 5000);
  const [open, setOpen] = useState<Opened>();
  const [secrets, setSecrets] = useState<GroupSecrets>();
  if (!group) return <Waiting title={words.one} error={error} trash="enrollment-groups" />;
  const close = () => setOpen(undefined);
  const change = async (body: Changes) => {
    const answer = await unwrap(api.PUT('/api/v1/enrollment-groups/{id}', { params: of(group), body }));
    toast(texts.saved);
    reload();
    return answer.enrollmentGroup;
  };
  const edit = async (values: Values) => {
    const isNew = values.certificateAuthorityId === newAuthority;
    const issuer = isNew ? { certificateAuthorityId: await makeIssuer(`${words.issuerOf} ${values.name}`) } : {};
    const { hookSecret } = await change({ ...changesOf(values), ...issuer });
    close();
    if (hookSecret !== undefined) setSecrets({ hookSecret });
  };
  const regenerate = async () => {
    const { enrollmentGroup } = await unwrap(
      api.POST('/api/v1/enrollment-groups/{id}/regenerate', { params: of(group) }),
    );
    setSecrets(secretsIn(enrollmentGroup));
    reload();
  };
  const remove = async () => {
    const { enrollmentGroup } = await unwrap(api.DELETE('/api/v1/enrollment-groups/{id}', { params: of(group) }));
    toast(words.deleted(group.name), () =>
      unwrap(api.POST('/api/v1/trash/enrollment-groups/{id}/recover', { params: of(enrollmentGroup) })),
    );
    go('/enrollment');
  };
  return (
    <Page title={group.name} actions={<Actions group={group} change={change} remove={remove} onOpen={setOpen} />}>
      <div class="stack">
        <About group={group} />
        <details class="panel">
          <summary>{words.tryIt}</summary>
          <p class="soft small">{words.secretStays}</p>
          <Lines group={group} />
        </details>
        <section>
          <h2>{words.refusals}</h2>
          <Refusals id={id} />
        </section>
        <section>
          <h2>{words.made}</h2>
          <Enrolled id={id} count={group.enrolledCount} />
        </section>
      </div>
      {open === 'edit' && <Edit group={group} save={edit} onClose={close} />}
      {open === 'regenerate' && group.proof !== 'certificate' && (
        <Confirm
          title={words.regenerateOf(group.name)}
          says={words.regenerateSays}
          verb={words.regenerate[group.proof]}
          run={regenerate}
          onClose={close}
        />
      )}
      {secrets && <SecretsDialog group={group} secrets={secrets} onClose={() => setSecrets(undefined)} />}
    </Page>
  );
}

function Actions({
  group,
  change,
  remove,
  onOpen,
}: {
  group: Group;
  change: (body: Changes) => Promise<unknown>;
  remove: () => Promise<void>;
  onOpen: (what: Opened) => void;
}) {
  const { proof, disabled } = group;
  if (!can('update', 'enrollmentGroup')) return null;
  return (
    <>
      <button type="button" class="primary" onClick={() => onOpen('edit')}>
        {texts.edit}
      </button>
      {proof !== 'certificate' && (
        <button type="button" onClick={() => onOpen('regenerate')}>
          {words.regenerate[proof]}
        </button>
      )}
      <ActionButton
        label={disabled ? words.enable : words.disable}
        act={() => change({ disabled: !disabled })}
        onError={failed}
      />
      {can('delete', 'enrollmentGroup') && (
        <ActionButton label={texts.delete} act={remove} onError={failed} kind="danger" />
      )}
    </>
  );
}

function Row({ name, children }: { name: string; children: ComponentChildren }) {
  return (
    <div>
      <dt>{name}</dt>
      <dd>{children}</dd>
    </div>
  );
}

function About({ group }: { group: Group }) {
  const { proof, issues, certificateAuthorityId, proofAuthorityId, organizationId, maxDevices } = group;
  return (
    <section class="panel about">
      <dl>
        <Row name={words.state}>
          <StateBadge group={group} />
        </Row>
        <Row name={words.enrolled}>{words.enrolledOf(group.enrolledCount, maxDevices)}</Row>
        <Row name={words.proof}>
          {words.proofs[proof]}
          {proofAuthorityId && (
            <div class="small soft">
              <NameOf kind="certificateAuthority" id={proofAuthorityId} />
            </div>
          )}
        </Row>
        <Row name={words.issues}>
          {words.issued[issues]}
          {certificateAuthorityId && (
            <div class="small soft">
              <NameOf kind="certificateAuthority" id={certificateAuthorityId} />, {words.daysOf(group.certificateDays)}
            </div>
          )}
        </Row>
        <Row name={texts.devices.product}>
          <Link href={`/products/${group.deviceTemplateId}`}>
            <NameOf kind="deviceTemplate" id={group.deviceTemplateId} otherwise={texts.devices.product} />
          </Link>
        </Row>
        <Row name={texts.devices.organization}>
          <NameOf kind="organization" id={organizationId} otherwise={<span class="soft">{texts.none}</span>} />
        </Row>
        <Row name={words.pattern}>
          <code>{group.serialNumberPattern}</code>
        </Row>
        {group.validFrom && (
          <Row name={words.validFrom}>
            <Time iso={group.validFrom} />
          </Row>
        )}
        {group.validUntil && (
          <Row name={words.validUntil}>
            <Time iso={group.validUntil} />
          </Row>
        )}
        <Row name={words.reprovision}>{words.reprovisions[group.reprovision]}</Row>
        {group.hookUrl && (
          <Row name={words.hookUrl}>
            <code>{group.hookUrl}</code>
          </Row>
        )}
      </dl>
    </section>
  );
}

function Edit({
  group,
  save,
  onClose,
}: {
  group: Group;
  save: (values: Values) => Promise<void>;
  onClose: () => void;
}) {
  // As they were when the dialog was opened: a later read must not replace what is typed.
  const [values] = useState(() => valuesOf(group));
  const [issues, setIssues] = useState<string>(group.issues);
  return (
    <Dialog title={words.editOf(group.name)} onClose={onClose}>
      <Form save={save} verb={texts.save} onCancel={onClose}>
        <PlaceFields
          proof={group.proof}
          values={values}
          issues={issues}
          onIssues={setIssues}
          mayMake={can('create', 'certificateAuthority')}
        />
        <LimitFields values={values} />
      </Form>
    </Dialog>
  );
}
