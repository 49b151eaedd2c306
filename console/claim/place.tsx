/** "Claim a device" in the console. */
import { accountId } from '../app/session.ts';
import { Page } from '../parts/page.tsx';
import { texts } from '../texts.ts';
import { Claim } from './claim.tsx';
import { readLabel } from './label.ts';

export function ClaimPlace() {
  return (
    <Page title={texts.claim.title}>
      <section class="panel narrow claim">
        <Claim account={accountId.value} code={readLabel(location.href).code} at="/console/my" />
      </section>
    </Page>
  );
}
