/** What is around each page of customers: whose products these are, the ways from here, and who is signed in. */
import { Link, Route, Switch, useLocation } from 'wouter-preact';
import { Above, Main } from '../app/frame.tsx';
import { place } from '../app/place.ts';
import { accountId, can, me, signOut } from '../app/session.ts';
import { BrandMark, useBranding } from '../claim/brand.tsx';
import { Button } from '../parts/forms/form.tsx';
import { leave } from '../parts/forms/unsaved.ts';
import { texts } from '../words.ts';
import { Devices } from './devices.tsx';
import { words } from './words.ts';

const Device = place(async () => (await import('./device.tsx')).Device);

export function Frame() {
  const [path] = useLocation();
  const { branding } = useBranding(accountId.value);
  const brand = branding?.name ?? '';
  return (
    <>
      <Above />
      <div class="my branded">
        <header>
          {branding && <BrandMark branding={branding} />}
          <nav class="tabs" aria-label={texts.menu}>
            <Link href="/" aria-current={path === '/' ? 'page' : undefined}>
              {words.title}
            </Link>
            {can('update', 'organization') && <a href="/console/organizations">{words.organizations}</a>}
            {can('update', 'endUser') && <a href="/console/people">{words.people}</a>}
            <a href="/console/account">{words.account}</a>
            <a href="/guide/console#my-devices" target="_blank" rel="noopener">
              {words.help}
            </a>
          </nav>
          <p class="who row small soft">
            <span>{me.value?.emailAddress}</span>
            <Button label={texts.signOut} onClick={() => leave(signOut)} />
          </p>
        </header>
        <Main>
          <Switch>
            <Route path="/:id">{({ id }) => <Device key={id} id={id} brand={brand} />}</Route>
            <Route>
              <Devices brand={brand} />
            </Route>
          </Switch>
        </Main>
      </div>
    </>
  );
}
