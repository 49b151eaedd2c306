/** Firmware: packages with their files, and rollouts by stage. */
import { useState } from 'preact/hooks';
import { can } from '../app/session.ts';
import { Page, Tabs } from '../parts/page.tsx';
import { texts } from '../texts.ts';
import { NewPackage, Packages } from './packages.tsx';
import { NewRollout, RolloutPage, Rollouts } from './rollouts.tsx';

const words = texts.firmware;

export function Firmware({ tab, id }: { tab: string; id: string | undefined }) {
  const [open, setOpen] = useState<'package' | 'rollout'>();
  const [round, setRound] = useState(0);
  if (tab === 'rollouts' && id !== undefined) return <RolloutPage key={id} id={id} />;
  const again = () => setRound((before) => before + 1);
  const made = () => {
    setOpen(undefined);
    again();
  };
  const isPackages = tab === '';
  return (
    <Page
      title={texts.places.firmware}
      trash={isPackages ? 'firmware' : undefined}
      actions={
        can('create', isPackages ? 'firmwarePackage' : 'firmwareRollout') && (
          <button type="button" class="primary" onClick={() => setOpen(isPackages ? 'package' : 'rollout')}>
            {isPackages ? words.newPackage : words.newRollout}
          </button>
        )
      }
    >
      <Tabs base="/firmware" current={tab} tabs={Object.entries(words.tabs)} />
      {isPackages ? <Packages round={round} onChanged={again} /> : <Rollouts round={round} />}
      {open === 'package' && <NewPackage onClose={() => setOpen(undefined)} onDone={made} />}
      {open === 'rollout' && <NewRollout onClose={() => setOpen(undefined)} onDone={made} />}
    </Page>
  );
}
