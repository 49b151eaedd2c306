/** The fields of a group, for the wizard and for its change. */
import type { paths } from '../api-types.d.ts';
import { Field, Select, type Values } from '../parts/form.tsx';
import { useLoad } from '../parts/load.ts';
import { Picker } from '../parts/picker.tsx';
import { texts } from '../texts.ts';
import { type Authority, type Group, readAuthorities } from './read.ts';

const words = texts.enrollment;
export type Proof = Group['proof'];
export type Changes = NonNullable<
  paths['/api/v1/enrollment-groups/{id}']['put']['requestBody']
>['content']['application/json'];
/** In the place of a CA: one that is made with the group. */
export const newAuthority = 'new';

/** What the fields say, as the API takes it; what was emptied is null. */
export function changesOf(values: Values) {
  const { issues = 'secret', reprovision = 'keep', certificateAuthorityId = null, proofAuthorityId } = values;
  const { validFrom, validUntil, maxDevices } = values;
  const time = (local: string | undefined) => (local === undefined ? null : new Date(local).toISOString());
  return {
    name: values.name ?? '',
    deviceTemplateId: values.deviceTemplateId ?? '',
    organizationId: values.organizationId ?? null,
    issues: issues as NonNullable<Changes['issues']>,
    certificateAuthorityId: issues === 'secret' ? null : certificateAuthorityId,
    ...(proofAuthorityId !== undefined && { proofAuthorityId }),
    serialNumberPattern: values.serialNumberPattern ?? '*',
    maxDevices: maxDevices === undefined ? null : Number(maxDevices),
    validFrom: time(validFrom),
    validUntil: time(validUntil),
    reprovision: reprovision as NonNullable<Changes['reprovision']>,
    certificateDays: Number(values.certificateDays ?? 365),
    overlapDays: Number(values.overlapDays ?? 7),
    hookUrl: values.hookUrl ?? null,
  } satisfies Changes;
}

/** A time as a field of local time shows it. */
function localTime(iso: string | null): string {
  if (iso === null) return '';
  const time = new Date(iso);
  return new Date(time.getTime() - time.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}

/** A group as the values of its fields. */
export function valuesOf(group: Group): Values {
  const { maxDevices, validFrom, validUntil, certificateDays, overlapDays } = group;
  const all = {
    ...{ name: group.name, deviceTemplateId: group.deviceTemplateId, organizationId: group.organizationId },
    ...{ issues: group.issues, certificateAuthorityId: group.certificateAuthorityId },
    ...{ proofAuthorityId: group.proofAuthorityId, serialNumberPattern: group.serialNumberPattern },
    ...{ maxDevices, validFrom: localTime(validFrom), validUntil: localTime(validUntil) },
    ...{ reprovision: group.reprovision, certificateDays, overlapDays, hookUrl: group.hookUrl },
  };
  const set = Object.entries(all).filter(([, value]) => value !== null && value !== '');
  return Object.fromEntries(set.map(([name, value]) => [name, String(value)]));
}

const named = (all: readonly Authority[]) => all.map(({ id, name }) => [id, name] as const);

/** Where its devices belong, and what they get. */
export function PlaceFields({
  proof,
  values,
  issues,
  onIssues,
  mayMake,
}: {
  proof: Proof;
  values: Values;
  issues: string;
  onIssues: (issues: string) => void;
  /** Whether a CA can be made with the group. */
  mayMake: boolean;
}) {
  const { data } = useLoad(() => readAuthorities(), []);
  const active = (data?.results ?? []).filter(({ state }) => state === 'active');
  const makers = active.filter(({ issuing }) => !issuing);
  const issuers = [
    ...named(active.filter(({ issuing }) => issuing)),
    ...(mayMake ? [[newAuthority, words.newIssuer] as const] : []),
  ];
  const choosing = { busy: !data, key: String(data === undefined) };
  return (
    <>
      <Field label={texts.name} name="name" required defaultValue={values.name} placeholder={words.nameExample} />
      <Picker
        kind="product"
        label={texts.devices.product}
        name="deviceTemplateId"
        {...given(values.deviceTemplateId)}
      />
      <Picker
        kind="organization"
        label={texts.devices.organization}
        name="organizationId"
        none={texts.none}
        {...given(values.organizationId)}
      />
      {proof === 'certificate' && (
        <>
          <Select
            {...choosing}
            label={words.proofAuthority}
            name="proofAuthorityId"
            value={values.proofAuthorityId}
            options={named(makers)}
          />
          {data && makers.length === 0 && <p class="note warn">{words.noMakers}</p>}
        </>
      )}
      <Select
        label={words.issues}
        name="issues"
        value={issues}
        options={Object.entries(words.issued)}
        onText={onIssues}
      />
      {issues !== 'secret' && (
        <>
          <Select
            {...choosing}
            label={words.issuer}
            name="certificateAuthorityId"
            value={values.certificateAuthorityId}
            options={issuers}
          />
          <Field
            label={words.certificateDays}
            name="certificateDays"
            type="number"
            min="1"
            max="3650"
            defaultValue={values.certificateDays ?? '365'}
          />
        </>
      )}
    </>
  );
}

const given = (value: string | undefined) => (value === undefined ? {} : { value });

/** What bounds it. */
export function LimitFields({ values }: { values: Values }) {
  return (
    <>
      <Field
        label={words.pattern}
        name="serialNumberPattern"
        maxLength={255}
        hint={words.patternHint}
        defaultValue={values.serialNumberPattern ?? '*'}
      />
      <Field label={words.maxDevices} name="maxDevices" type="number" min="1" defaultValue={values.maxDevices} />
      <Field label={words.validFrom} name="validFrom" type="datetime-local" defaultValue={values.validFrom} />
      <Field label={words.validUntil} name="validUntil" type="datetime-local" defaultValue={values.validUntil} />
      <Select
        label={words.reprovision}
        name="reprovision"
        value={values.reprovision ?? 'keep'}
        options={Object.entries(words.reprovisions)}
      />
      <Field
        label={words.overlapDays}
        name="overlapDays"
        type="number"
        min="1"
        max="90"
        hint={words.overlapHint}
        defaultValue={values.overlapDays ?? '7'}
      />
      <Field
        label={words.hookUrl}
        name="hookUrl"
        type="url"
        hint={words.hookHint}
        placeholder="https://example.com/enrollment"
        defaultValue={values.hookUrl}
      />
    </>
  );
}
