/** What jobs, rollouts, updates, commands and packages have come to: in the same words and colours everywhere. */
import { texts } from '../../texts.ts';
import { Badge } from './shown.tsx';

type Name = keyof typeof texts.states;
const kinds: Partial<Record<Name, 'good' | 'bad' | 'warn'>> = {
  accepted: 'warn',
  done: 'good',
  downloaded: 'warn',
  downloading: 'warn',
  failed: 'bad',
  installing: 'warn',
  paused: 'warn',
  published: 'good',
  running: 'good',
  sent: 'warn',
  succeeded: 'good',
  timedOut: 'bad',
};

export const State = ({ of }: { of: Name }) => <Badge kind={kinds[of]} text={texts.states[of]} />;
