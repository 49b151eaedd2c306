/** The frame around every place: navigation, who is signed in, notices. */
import { useEffect, useState } from 'preact/hooks';
import { Link, Redirect, Route, Switch, useLocation } from 'wouter-preact';
import { BrandMark, useBranding } from '../claim/brand.tsx';
import { useLoad } from '../parts/data/load.ts';
import { Button } from '../parts/forms/form.tsx';
import { leave } from '../parts/forms/unsaved.ts';
import { Icon, type IconName } from '../parts/page/icons.tsx';
import { Loading, Page } from '../parts/page/page.tsx';
import { texts } from '../texts.ts';
import { api, unwrap } from './api.ts';
import { Above, Main } from './frame.tsx';
import { Keys } from './keys.tsx';
import { place } from './place.ts';
import { accountId, can, isCustomer, me, signOut } from './session.ts';

const Home = place(async () => (await import('../home/home.tsx')).Home);
const HomeList = place(async () => (await import('../home/lists.tsx')).HomeList);
const FirstDevice = place(async () => (await import('../first-device/first-device.tsx')).FirstDevice);
const Devices = place(async () => (await import('../devices/devices.tsx')).Devices);
const Device = place(async () => (await import('../device/device.tsx')).Device);
const Fleet = place(async () => (await import('../fleets/fleet.tsx')).Fleet);
const Fleets = place(async () => (await import('../fleets/fleets.tsx')).Fleets);
const Organization = place(async () => (await import('../organizations/organization.tsx')).Organization);
const Organizations = place(async () => (await import('../organizations/organizations.tsx')).Organizations);
const People = place(async () => (await import('../people/people.tsx')).People);
const Product = place(async () => (await import('../products/product.tsx')).Product);
const Products = place(async () => (await import('../products/products.tsx')).Products);
const Factory = place(async () => (await import('../factory/factory.tsx')).Factory);
const Enrollment = place(async () => (await import('../enrollment/enrollment.tsx')).Enrollment);
const Firmware = place(async () => (await import('../firmware/firmware.tsx')).Firmware);
const Programs = place(async () => (await import('../programs/programs.tsx')).Programs);
const Trash = place(async () => (await import('../trash/trash.tsx')).Trash);
const Account = place(async () => (await import('../account/account.tsx')).Account);

/** Places, and the right without which one is not shown. */
const places: readonly { path: string; icon: IconName; name: keyof typeof texts.places; shown: () => boolean }[] = [
  { path: '/home', icon: 'home', name: 'home', shown: () => can('read', 'device') && !isCustomer() },
  { path: '/first-device', icon: 'start', name: 'firstDevice', shown: () => can('create', 'device') },
  { path: '/devices', icon: 'devices', name: 'devices', shown: () => can('read', 'device') },
  { path: '/fleets', icon: 'fleets', name: 'fleets', shown: () => can('read', 'fleet') },
  { path: '/organizations', icon: 'organizations', name: 'organizations', shown: () => can('read', 'organization') },
  { path: '/people', icon: 'people', name: 'people', shown: () => can('read', 'endUser') },
  { path: '/products', icon: 'products', name: 'products', shown: () => can('read', 'deviceTemplate') },
  { path: '/factory', icon: 'factory', name: 'factory', shown: () => can('read', 'job') },
  { path: '/enrollment', icon: 'enrollment', name: 'enrollment', shown: () => can('read', 'enrollmentGroup') },
  { path: '/firmware', icon: 'firmware', name: 'firmware', shown: () => can('read', 'firmwarePackage') },
  { path: '/programs', icon: 'programs', name: 'programs', shown: () => can('read', 'application') },
  { path: '/trash', icon: 'trash', name: 'trash', shown: () => can('delete', 'device') },
  { path: '/account', icon: 'account', name: 'account', shown: () => true },
];

export function Shell() {
  const [path] = useLocation();
  const [open, setOpen] = useState(false);
  useEffect(() => setOpen(false), [path]);
  const reached = places.filter(({ shown }) => shown());
  return (
    <>
      <Above />
      <div class="shell">
        <div class={open ? 'side open' : 'side'}>
          <div class="top">
            <Brand />
            <Keys places={reached.map(({ path, icon, name }) => ({ path, icon, name: texts.places[name] }))} />
            <button type="button" class="menu" aria-expanded={open} onClick={() => setOpen(!open)}>
              <Icon name="menu" /> {texts.menu}
            </button>
          </div>
          <nav aria-label={texts.menu}>
            {isCustomer() && (
              <a href="/console/my">
                <Icon name="devices" /> {texts.places.my}
              </a>
            )}
            {reached.map(({ path: to, icon, name }) => (
              <Link key={to} href={to} aria-current={path.startsWith(to) ? 'page' : undefined}>
                <Icon name={icon} /> {texts.places[name]}
              </Link>
            ))}
          </nav>
          <div class="who">
            {me.value?.emailAddress}
            <br />
            {me.value?.accountName}
            <br />
            <Button label={texts.signOut} onClick={() => leave(signOut)} />
          </div>
        </div>
        <Main>
          <Switch>
            <Route path="/" component={Start} />
            <Route path="/home" component={Home} />
            <Route path="/home/:list">{({ list }) => <HomeList list={list} />}</Route>
            <Route path="/first-device" component={FirstDevice} />
            <Route path="/devices" component={Devices} />
            <Route path="/devices/:id/:tab?">{({ id, tab }) => <Device key={id} id={id} tab={tab ?? ''} />}</Route>
            <Route path="/fleets" component={Fleets} />
            <Route path="/fleets/:id">{({ id }) => <Fleet key={id} id={id} />}</Route>
            <Route path="/organizations" component={Organizations} />
            <Route path="/organizations/:id">{({ id }) => <Organization key={id} id={id} />}</Route>
            <Route path="/people/:tab?">{({ tab }) => <People tab={tab ?? ''} />}</Route>
            <Route path="/products" component={Products} />
            <Route path="/products/:id">{({ id }) => <Product key={id} id={id} />}</Route>
            <Route path="/factory/:id?">{({ id }) => <Factory id={id} />}</Route>
            <Route path="/enrollment/:tab?/:id?">{({ tab, id }) => <Enrollment tab={tab ?? ''} id={id} />}</Route>
            <Route path="/firmware/:tab?/:id?">{({ tab, id }) => <Firmware tab={tab ?? ''} id={id} />}</Route>
            <Route path="/programs/:tab?">{({ tab }) => <Programs tab={tab ?? ''} />}</Route>
            <Route path="/trash/:tab?">{({ tab }) => <Trash tab={tab ?? ''} />}</Route>
            <Route path="/account/:tab?">{({ tab }) => <Account tab={tab ?? ''} />}</Route>
            <Route>
              <NoSuchPlace />
            </Route>
          </Switch>
        </Main>
      </div>
    </>
  );
}

/** Customers are on the pages of their company. */
function Brand() {
  const { branding } = useBranding(isCustomer() ? accountId.value : '');
  if (isCustomer())
    return (
      <a class="brand" href="/console/my">
        {branding && <BrandMark branding={branding} />}
      </a>
    );
  return (
    <Link class="brand" href="/">
      <Icon name="slipway" /> Slipway
    </Link>
  );
}

/** A page that is not there has a way home. */
function NoSuchPlace() {
  return (
    <Page title={texts.noSuchPlace}>
      <p>{texts.noSuchPlaceHint}</p>
      <Link class="button primary" href="/">
        {texts.wayHome}
      </Link>
    </Page>
  );
}

/** A new account sees the first device, every other Home; customers have a page of their own. */
function Start() {
  useEffect(() => {
    if (isCustomer()) location.replace('/console/my');
  }, []);
  const { data, error } = useLoad(
    () => unwrap(api.GET('/api/v1/devices/counts', { params: { query: { accountId: accountId.value } } })),
    [],
  );
  if (isCustomer()) return <Loading />;
  if (error || !can('create', 'device')) return <Redirect to={can('read', 'device') ? '/home' : '/account'} replace />;
  if (!data) return <Loading />;
  return <Redirect to={data.counts.total === 0 ? '/first-device' : '/home'} replace />;
}
