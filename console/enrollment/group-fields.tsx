/** The fields of a group, for the wizard and for its change. */
import { type Changes as ChangesOf, readList } from '../app/entities.ts';
import { can } from '../app/session.ts';
import { useLoad } from '../parts/data/load.ts';
import { localTime } from '../parts/formats/times.ts';
import type { Chosen, FieldsOf } from '../parts/forms/fields.tsx';
import { Select, type Values } from '../parts/forms/form.tsx';
import { texts } from '../texts.ts';
import { makeIssuer } from './authorities.tsx';
import type { Group } from './read.ts';

const words = texts.enrollment;
export type Proof = Group['proof'];
type Changes = ChangesOf<'enrollmentGroup'>;
/** In the place of a CA: one that is made with the group. */
const newAuthority = 'new';

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

/** What is chosen, with a CA that is made now if it is to have one. */
export async function withIssuer(values: Values): Promise<Values> {
  if (values.issues === 'secret' || values.certificateAuthorityId !== newAuthority) return values;
  return { ...values, certificateAuthorityId: await makeIssuer(`${words.issuerOf} ${values.name}`) };
}

/** What a new group has unless somebody changes it. */
export const usual: Values = {
  ...{ proof: 'claimSecret', issues: 'secret', certificateDays: '365' },
  ...{ serialNumberPattern: '*', reprovision: 'keep', overlapDays: '7' },
};

/** A group as the values of its fields. */
export function valuesOf(group: Group): object {
  const { validFrom, validUntil } = group;
  return { ...group, validFrom: validFrom && localTime(validFrom), validUntil: validUntil && localTime(validUntil) };
}

/** A CA whose certificates are a proof, or one that issues. */
function AuthorityPicker({ label, isIssuing, ...chosen }: Chosen & { label: string; isIssuing: boolean }) {
  const { data } = useLoad(() => readList('certificateAuthority', 1, { pageSize: 100 }), []);
  const fit = (data?.results ?? []).filter(({ state, issuing }) => state === 'active' && issuing === isIssuing);
  const options = fit.map(({ id, name }) => [id, name] as const);
  const made = isIssuing && can('create', 'certificateAuthority') ? [[newAuthority, words.newIssuer] as const] : [];
  return (
    <>
      <Select key={String(!data)} label={label} busy={!data} options={[...options, ...made]} {...chosen} />
      {data && !isIssuing && fit.length === 0 && <p class="note warn">{words.noMakers}</p>}
    </>
  );
}

/** Where its devices belong, and what they get. */
export function placeFields(proof: string | undefined): FieldsOf {
  return ({ issues }) => [
    { name: 'name', label: texts.name, required: true, placeholder: words.nameExample },
    { name: 'deviceTemplateId', label: texts.product, pick: 'product' },
    { name: 'organizationId', label: texts.organization, pick: 'organization', none: texts.none },
    proof === 'certificate' && {
      name: 'proofAuthorityId',
      choice: (chosen) => <AuthorityPicker label={words.proofAuthority} isIssuing={false} {...chosen} />,
    },
    { name: 'issues', label: words.issues, options: Object.entries(words.issued) },
    issues !== 'secret' && {
      name: 'certificateAuthorityId',
      choice: (chosen) => <AuthorityPicker label={words.issuer} isIssuing {...chosen} />,
    },
    issues !== 'secret' && {
      ...{ name: 'certificateDays', label: words.certificateDays, type: 'number', min: '1', max: '3650' },
    },
  ];
}

/** What bounds it. */
export const limitFields: FieldsOf = () => [
  { name: 'serialNumberPattern', label: words.pattern, maxLength: 255, hint: words.patternHint },
  { name: 'maxDevices', label: words.maxDevices, type: 'number', min: '1' },
  { name: 'validFrom', label: words.validFrom, type: 'datetime-local' },
  { name: 'validUntil', label: texts.validUntil, type: 'datetime-local' },
  { name: 'reprovision', label: words.reprovision, options: Object.entries(words.reprovisions) },
  { name: 'overlapDays', label: words.overlapDays, type: 'number', min: '1', max: '90', hint: words.overlapHint },
  {
    ...{ name: 'hookUrl', label: words.hookUrl, type: 'url', hint: words.hookHint },
    placeholder: 'https://example.com/enrollment',
  },
];
