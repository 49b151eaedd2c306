/** The secrets of a group, which only one answer has, and what a device does with them. */
import { UnitsWarning } from '../parts/broker-warning.tsx';
import { Code } from '../parts/code.tsx';
import { CloseButton, Dialog } from '../parts/dialog.tsx';
import { texts } from '../texts.ts';
import { type Asked, enrollLines, secretLine } from './lines.ts';

const words = texts.enrollment;

export interface GroupSecrets {
  claimSecret?: string;
  groupKey?: string;
  hookSecret?: string;
}

/** Those of an answer. */
export function secretsIn({ claimSecret, groupKey, hookSecret }: GroupSecrets): GroupSecrets {
  return {
    ...(claimSecret !== undefined && { claimSecret }),
    ...(groupKey !== undefined && { groupKey }),
    ...(hookSecret !== undefined && { hookSecret }),
  };
}

/** The commands of a device, or of a person who tries the group. */
export function Lines({ group, secrets = {} }: { group: Asked; secrets?: GroupSecrets }) {
  const { slipway, curl } = enrollLines(location.origin, group);
  const first = secretLine(secrets);
  const all = (lines: string) => (first === '' ? lines : `${first}\n${lines}`);
  return (
    <>
      <UnitsWarning />
      <Code label={words.withCommand} text={all(slipway)} />
      <Code label={words.withCurl} text={all(curl)} />
    </>
  );
}

export function SecretsDialog({
  group,
  secrets,
  onClose,
}: {
  group: Asked & { name: string };
  secrets: GroupSecrets;
  onClose: () => void;
}) {
  const { claimSecret, groupKey, hookSecret } = secrets;
  const hasSecret = Object.keys(secrets).length > 0;
  return (
    <Dialog title={words.readyOf(group.name)} onClose={onClose} wide>
      {hasSecret && <p class="note warn">{words.once}</p>}
      {claimSecret && <Code label={words.claimSecret} text={claimSecret} />}
      {groupKey && <Code label={words.groupKey} text={groupKey} />}
      {hookSecret && <Code label={words.hookSecret} text={hookSecret} />}
      <h3>{words.tryIt}</h3>
      <Lines group={group} secrets={secrets} />
      <CloseButton onClose={onClose} primary />
    </Dialog>
  );
}
