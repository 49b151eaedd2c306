/** The secrets of a group, which only one answer has, and what a device does with them. */

import { Code } from '../parts/codes/code.tsx';
import { UnitsWarning } from '../parts/dialogs/broker-warning.tsx';
import { CloseButton, Dialog } from '../parts/dialogs/dialog.tsx';
import { texts } from '../texts.ts';
import { type EnrollingGroup, enrollLines, secretLine } from './lines.ts';

const words = texts.enrollment;

interface GroupSecrets {
  claimSecret?: string;
  groupKey?: string;
  hookSecret?: string;
}

/** The commands of a device, or of a person who tries the group. */
export function Lines({ group, secrets = {} }: { group: EnrollingGroup; secrets?: GroupSecrets }) {
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

/** `group` is an answer that has them. */
export function SecretsDialog({
  group,
  onClose,
}: {
  group: EnrollingGroup & { name: string } & GroupSecrets;
  onClose: () => void;
}) {
  const { claimSecret, groupKey, hookSecret } = group;
  const hasSecret = (claimSecret ?? groupKey ?? hookSecret) !== undefined;
  return (
    <Dialog title={words.readyOf(group.name)} onClose={onClose} wide>
      {hasSecret && <p class="note warn">{words.once}</p>}
      {claimSecret && <Code label={words.claimSecret} text={claimSecret} />}
      {groupKey && <Code label={words.groupKey} text={groupKey} />}
      {hookSecret && <Code label={words.hookSecret} text={hookSecret} />}
      <h3>{words.tryIt}</h3>
      <Lines group={group} secrets={group} />
      <CloseButton onClose={onClose} primary />
    </Dialog>
  );
}
