/** What happened, as a sentence with names: "ada@example.com made a new secret for RS-0001". */
import type { ComponentChildren } from 'preact';
import { Link } from 'wouter-preact';
import type { paths } from '../api-types.d.ts';
import { isNamedKind, NameOf } from '../parts/data/names.tsx';
import { texts } from '../texts.ts';

const words = texts.audit;
type Audit = paths['/api/v1/audit']['get']['responses'][200]['content']['application/json']['auditRecords'];
export type AuditRow = NonNullable<Audit['results']>[number];

/** Where the page of a thing is. */
const places: Record<string, (id: string) => string> = {
  device: (id) => `/devices/${id}`,
  organization: (id) => `/organizations/${id}`,
  deviceTemplate: (id) => `/products/${id}`,
  job: (id) => `/factory/${id}`,
  firmwareRollout: (id) => `/firmware/rollouts/${id}`,
};

/** A thing by its name, which leads to its page; by its kind where it has no name. */
function Thing({ kind, id }: { kind: string; id: string | null }) {
  const otherwise = words.things[kind] ?? kind;
  const name = id !== null && isNamedKind(kind) ? <NameOf kind={kind} id={id} otherwise={otherwise} /> : otherwise;
  const place = id === null ? undefined : places[kind]?.(id);
  return place ? <Link href={place}>{name}</Link> : <b title={id ?? undefined}>{name}</b>;
}

const people = ['admin', 'endUser', 'newcomer'];

function Actor({ kind, id }: { kind: string | null; id: string | null }) {
  if (kind === null || id === null) return <b>{words.somebody}</b>;
  if (kind === 'device' || kind === 'identityProvider') return <Thing kind={kind} id={id} />;
  return <Thing kind={people.includes(kind) ? 'identity' : 'application'} id={id} />;
}

export function Sentence({
  of: { event, outcome, actorKind, actorId, targetKind, targetId, details },
}: {
  of: AuditRow;
}) {
  const said = outcome === 'failure' ? (words.failures[event] ?? words.says[event]) : words.says[event];
  const sentence = typeof said === 'function' ? said(details) : (said ?? words.other(event));
  // A person is known by the login.
  const isPerson = targetKind === 'accountUser' || targetKind === 'endUser';
  const userId = typeof details.userId === 'string' ? details.userId : undefined;
  const named: Record<string, ComponentChildren> = {
    actor: <Actor kind={actorKind} id={actorId} />,
    target:
      isPerson && userId ? (
        <Thing kind="identity" id={userId} />
      ) : targetKind === null ? (
        words.somebody
      ) : (
        <Thing kind={targetKind} id={targetId} />
      ),
    device: <Thing kind="device" id={String(details.deviceId ?? '')} />,
    package: <Thing kind="firmwarePackage" id={String(details.firmwarePackageId ?? '')} />,
  };
  return <>{sentence.split(/[{}]/).map((part, at) => (at % 2 === 0 ? part : (named[part] ?? part)))}</>;
}
