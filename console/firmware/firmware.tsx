/** Firmware: packages with their files, and rollouts by stage. */
import { EntityPage } from '../parts/lists/entity-page.tsx';
import { texts } from '../texts.ts';
import { packages } from './packages.tsx';
import { RolloutPage, rollouts } from './rollouts.tsx';

const lists = { '': packages, rollouts };

export function Firmware({ tab, id }: { tab: string; id: string | undefined }) {
  if (tab === 'rollouts' && id !== undefined) return <RolloutPage key={id} id={id} />;
  return <EntityPage title={texts.places.firmware} path="/firmware" tab={tab} lists={lists} />;
}
