/** Enrollment in the console: a group by its wizard, what it makes and refuses, certificates that end, CAs. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { texts } from '../../console/texts.ts';
import { basic, claim, newGroup } from '../enrollment/devices.ts';
import { makeAuthority, registerAuthority } from '../support/certificates.ts';
import { openssl } from '../support/openssl.ts';
import { part } from '../support/part.ts';
import { present, type Service, startService } from '../support/service.ts';
import { holdUndo, openAs } from './browser.ts';
import { openBrowser } from './shared-browser.ts';

const t = await part(import.meta);

let service: Service;
let browser: Browser;
t.before(async () => {
  service = await startService(t);
  browser = await openBrowser();
});

const press = (page: Page, name: string) => page.getByRole('button', { name, exact: true }).click();
const inDialog = (page: Page, name: string) =>
  page.getByRole('dialog').getByRole('button', { name, exact: true }).click();
const shownIn = async (page: Page, label: string) =>
  ((await page.getByRole('region', { name: label, exact: true }).locator('pre').textContent()) ?? '').trim();

t.test('a group is made step by step, shows its secret once, and what it makes and refuses', async (t) => {
  const { name: product } = await service.template({ name: 'Pump', channels: ['readings'] });
  const { page, errors, foreign } = await openAs(t, browser, service, 'enrollment');
  await press(page, 'New enrollment group');
  await page.getByLabel('The same image on every unit').check();
  await inDialog(page, 'Next');
  await page.getByLabel('Name').and(page.locator(':focus')).waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog', { name: 'Leave without saving?', exact: true }).waitFor();
  await press(page, 'Keep editing');
  await page.getByLabel('Name').fill('Pumps 2027');
  await page.getByLabel('Product').selectOption({ label: product });
  await inDialog(page, 'Next');
  await page.getByLabel('Serial numbers').fill('P-*');
  await page.getByLabel('Most devices').fill('10');
  await inDialog(page, 'Previous step');
  t.equal(await page.getByLabel('Name').inputValue(), 'Pumps 2027', 'the step before is as it was');
  await inDialog(page, 'Next');
  await page.getByLabel('Serial numbers').fill('P-*');
  await page.getByLabel('Most devices').fill('10');
  await inDialog(page, 'Create');
  await page.getByText('What follows is shown only now.').waitFor();
  const secret = await shownIn(page, 'Claim secret');
  service.secrets.add(secret);
  t.match(await shownIn(page, 'With the command'), /export CLAIM_SECRET=.*\nslipway enroll --url http/);
  await inDialog(page, 'Close');
  await page.getByRole('heading', { name: 'Pumps 2027', level: 1 }).waitFor();
  const id = present(page.url().split('/').at(-1));
  const headers = basic(id, secret);
  const enroll = (serialNumber: string, more = headers) =>
    service.http('POST', '/api/v1/enroll', { token: null, headers: more, body: { serialNumber } });
  t.equal((await enroll('P-0001')).status, 200);
  t.equal((await enroll('X-0001')).status, 403);
  await page.getByRole('link', { name: 'P-0001', exact: true }).waitFor();
  await page.getByText('1 of 10').waitFor();
  await page.getByRole('row', { name: /X-0001 The serial number does not match the pattern/ }).waitFor();
  await press(page, 'Actions of P-0001');
  await page.getByRole('menuitem', { name: 'Allow to enroll again', exact: true }).click();
  await page.getByText('The device may enroll once more within 24 hours.').waitFor();

  await press(page, 'Disable');
  await page.getByText('Disabled', { exact: true }).waitFor();
  t.match(await enroll('P-0002'), { status: 403, body: { error: { message: /disabled/ } } });
  await press(page, 'Enable');
  await page.getByText('Open', { exact: true }).waitFor();
  await press(page, 'Edit');
  await page.getByLabel('Most devices').fill('');
  await inDialog(page, 'Save');
  await page.getByRole('definition').getByText('1', { exact: true }).waitFor();
  t.equal((await service.ok('GET', `/api/v1/enrollment-groups/${id}`)).enrollmentGroup.maxDevices, null);
  await press(page, 'Make a new claim secret');
  await inDialog(page, 'Make a new claim secret');
  const next = await shownIn(page, 'Claim secret');
  service.secrets.add(next);
  await inDialog(page, 'Close');
  t.equal((await enroll('P-0002')).status, 401);
  t.equal((await enroll('P-0002', basic(id, next))).status, 200);
  await press(page, 'Show the call');
  t.notOk((await page.getByRole('dialog').textContent())?.includes(next), 'the secret is not kept');
  await page.keyboard.press('Escape');
  await press(page, 'Delete');
  const undo = await holdUndo(page);
  await page.getByText('There are no enrollment groups yet.').waitFor();
  await undo.click();
  await page.getByRole('link', { name: 'Pumps 2027', exact: true }).waitFor();
  t.strictSame([errors, foreign], [[], []]);
});

t.test('an enrollment group warns of the address that devices are told, and of no other', async (t) => {
  const { tryIt } = texts.enrollment;
  const { id } = await newGroup(service);
  const { page } = await openAs(t, browser, service, `enrollment/groups/${id}`);
  await page.getByText(tryIt, { exact: true }).click();
  await page.getByRole('note').getByText('A board cannot connect to 127.0.0.1').waitFor();
  await page
    .getByRole('note')
    .getByText(/^Set SLIPWAY_MQTT_PUBLIC_URL/)
    .waitFor();
  const named = await startService(t, { env: { SLIPWAY_MQTT_PUBLIC_URL: 'mqtts://things.example.com:8883' } });
  const group = await newGroup(named);
  const { page: other } = await openAs(t, browser, named, `enrollment/groups/${group.id}`);
  await other.getByText(tryIt, { exact: true }).click();
  await other.getByRole('region', { name: 'With the command' }).waitFor();
  t.equal(await other.getByText('A board cannot connect').count(), 0);
});

t.test('a group that issues certificates gets its CA on the way; a certificate is ended', async (t) => {
  const { page, errors } = await openAs(t, browser, service, 'enrollment');
  await press(page, 'New enrollment group');
  await page.getByLabel('A key of its own, written on the line').check();
  await inDialog(page, 'Next');
  await page.getByLabel('Name').fill('Meters');
  await page.getByLabel('Devices get').selectOption('certificate');
  await page.getByLabel('Issuing CA').selectOption({ label: 'Make a new one' });
  await page.getByLabel('Days until a certificate expires').fill('20');
  await inDialog(page, 'Next');
  await inDialog(page, 'Create');
  service.secrets.add(await shownIn(page, 'Group key'));
  t.match(await shownIn(page, 'With curl'), /openssl req[\s\S]*KEY=\$\(printf/);
  await inDialog(page, 'Close');
  await page.getByRole('heading', { name: 'Meters', level: 1 }).waitFor();
  const list = `/api/v1/access/certificate-authorities?accountId=${service.accountId}`;
  const { certificateAuthorities } = await service.ok('GET', list);
  const { id: certificateAuthorityId, name } = present(certificateAuthorities.results?.[0]);
  t.equal(name, 'CA of Meters');

  const group = await newGroup(service, { issues: 'certificate', certificateAuthorityId, certificateDays: 20 });
  const { csr } = openssl(t).request();
  t.equal((await claim(service, group, { serialNumber: 'M-0001', csr })).status, 200);
  await page.getByRole('link', { name: 'Enrollment', exact: true }).click();
  await page.getByRole('link', { name: 'Certificates', exact: true }).click();
  await page.getByLabel('Ends').selectOption({ label: 'Within 30 days' });
  await page.getByRole('row', { name: /M-0001 .* Soon CA of Meters/ }).waitFor();
  await press(page, 'Actions of M-0001');
  await page.getByRole('menuitem', { name: 'End', exact: true }).click();
  await inDialog(page, 'End');
  await page.getByText('There are no such certificates.').waitFor();
  t.strictSame(errors, []);
});

t.test(
  'a CA is made with a request, gets the certificate of the company’s CA, and its list is downloaded',
  async (t) => {
    const { page, errors } = await openAs(t, browser, service, 'enrollment/authorities');
    await press(page, 'New certificate authority');
    await page.getByLabel('Name').fill('Devices of the company');
    await page.getByLabel('Kind').selectOption('request');
    await inDialog(page, 'Create');
    const row = page.getByRole('row', { name: /^Devices of the company/ });
    await row.getByText('Waits').waitFor();
    const upload = async () => {
      await press(page, 'Actions of Devices of the company');
      await page.getByRole('menuitem', { name: 'Upload the certificate', exact: true }).click();
    };
    await upload();
    const shell = openssl(t);
    shell.write('ca.csr', await shownIn(page, 'Request'));
    shell.write('extensions', 'basicConstraints=critical,CA:true,pathlen:0\nkeyUsage=critical,keyCertSign,cRLSign\n');
    const root = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes', '-keyout', 'root.key'];
    shell.run('req', '-x509', ...root, '-subj', '/CN=Company', '-out', 'root.crt');
    const signed = [
      '-CA',
      'root.crt',
      '-CAkey',
      'root.key',
      '-CAcreateserial',
      '-days',
      '100',
      '-extfile',
      'extensions',
    ];
    const certificate = shell.run('x509', '-req', '-in', 'ca.csr', ...signed);
    await page.getByLabel('PEM').fill(certificate);
    await inDialog(page, 'Upload the certificate');
    await row.getByText('Active').waitFor();
    await press(page, 'Actions of Devices of the company');
    const item = page.getByRole('menuitem', { name: 'Download the revocation list', exact: true });
    const [file] = await Promise.all([page.waitForEvent('download'), item.click()]);
    t.equal(file.suggestedFilename(), 'devices-of-the-company.crl');
    shell.write('list.crl', readFileSync(await file.path()));
    t.match(shell.run('crl', '-inform', 'DER', '-in', 'list.crl', '-noout', '-issuer'), /Devices of the company/);
    t.strictSame(errors, []);
  },
);

t.test('a registered CA gets its revocation list, and says by what its certificates name a device', async (t) => {
  const ca = await makeAuthority({ subject: 'CN=Plant' });
  const { id } = await registerAuthority(service, ca, { name: 'Plant' });
  const shell = openssl(t);
  for (const [name, content] of Object.entries({ 'ca.pem': ca.cert, 'ca.key': ca.key, 'index.txt': '', number: '0A' }))
    shell.write(name, content);
  shell.write('ca.cnf', '[ca]\ndefault_ca=a\n[a]\ndatabase=index.txt\ncrlnumber=number\ndefault_md=sha256\n');
  const signing = ['-config', 'ca.cnf', '-crldays', '1', '-keyfile', 'ca.key', '-cert', 'ca.pem'];
  shell.run('ca', '-gencrl', ...signing, '-out', 'list.crl');
  const { page, errors } = await openAs(t, browser, service, 'enrollment/authorities');
  const row = page.getByRole('row', { name: /^Plant / });
  await press(page, 'Actions of Plant');
  await page.getByRole('menuitem', { name: 'Upload a revocation list', exact: true }).click();
  await page.getByLabel('File', { exact: true }).setInputFiles(join(shell.directory, 'list.crl'));
  await inDialog(page, 'Upload a revocation list');
  await row.getByText('0 certificates, until').waitFor();
  await press(page, 'Actions of Plant');
  await page.getByRole('menuitem', { name: 'Edit', exact: true }).click();
  await page.getByLabel('Its certificates name a device by').selectOption('serialNumber');
  await page.getByLabel('When the list has expired').selectOption('refuse');
  await inDialog(page, 'Save');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  const { certificateAuthority } = await service.ok('GET', `/api/v1/access/certificate-authorities/${id}`);
  t.match(certificateAuthority, { identity: 'serialNumber', crlPolicy: 'refuse', crlUrl: null, crlCount: 0 });
  t.strictSame(errors, []);
});

t.end();
