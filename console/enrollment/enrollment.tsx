/** Enrollment: groups whose devices get their credential by themselves, certificates of devices, and the CAs behind them. */
import { EntityPage } from '../parts/lists/entity-page.tsx';
import { texts } from '../texts.ts';
import { authorities } from './authorities.tsx';
import { certificates } from './certificates.tsx';
import { GroupPage } from './group.tsx';
import { groups } from './groups.tsx';

const lists = { '': groups, certificates, authorities };

export function Enrollment({ tab, id }: { tab: string; id: string | undefined }) {
  if (tab === 'groups' && id !== undefined) return <GroupPage key={id} id={id} />;
  return <EntityPage title={texts.places.enrollment} path="/enrollment" tab={tab} lists={lists} />;
}
