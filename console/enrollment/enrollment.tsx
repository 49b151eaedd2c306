/** Enrollment: groups whose devices get their credential by themselves, certificates of devices, and the CAs behind them. */
import { useState } from 'preact/hooks';
import { useLocation } from 'wouter-preact';
import { useAction } from '../app/actions.ts';
import { can } from '../app/session.ts';
import { Page, Tabs } from '../parts/page.tsx';
import { texts } from '../texts.ts';
import { Authorities } from './authorities.tsx';
import { Certificates } from './certificates.tsx';
import { GroupPage } from './group.tsx';
import { Groups } from './groups.tsx';
import { NewAuthority } from './new-authority.tsx';
import { NewGroup } from './new-group.tsx';

const words = texts.enrollment;
type Tab = keyof typeof words.tabs;
const rights: Record<Tab, string> = {
  '': 'enrollmentGroup',
  certificates: 'mqttCertificate',
  authorities: 'certificateAuthority',
};

export function Enrollment({ tab: asked, id }: { tab: string; id: string | undefined }) {
  const [, go] = useLocation();
  const [making, setMaking] = useState(false);
  const [round, setRound] = useState(0);
  useAction('newEnrollmentGroup', () => setMaking(true));
  if (asked === 'groups' && id !== undefined) return <GroupPage key={id} id={id} />;
  const tab = (asked in words.tabs ? asked : '') as Tab;
  const again = () => {
    setMaking(false);
    setRound((before) => before + 1);
  };
  return (
    <Page
      title={texts.places.enrollment}
      trash={tab === '' ? 'enrollment-groups' : undefined}
      actions={
        tab !== 'certificates' &&
        can('create', rights[tab]) && (
          <button type="button" class="primary" onClick={() => setMaking(true)}>
            {words.new[tab]}
          </button>
        )
      }
    >
      <Tabs
        base="/enrollment"
        current={tab}
        tabs={Object.entries(words.tabs).filter(([name]) => can('read', rights[name as Tab]))}
      />
      {tab === '' && <Groups round={round} />}
      {tab === 'certificates' && <Certificates />}
      {tab === 'authorities' && <Authorities round={round} />}
      {making && tab === 'authorities' && <NewAuthority onClose={() => setMaking(false)} onDone={again} />}
      {making && tab === '' && (
        <NewGroup
          onClose={again}
          onDone={(group) => {
            again();
            go(`/enrollment/groups/${group}`);
          }}
        />
      )}
    </Page>
  );
}
