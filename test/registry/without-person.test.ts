/** End-users of which nobody can log in: they hold credentials and own devices until a person is attached. */
import { Mailbox } from '../support/mailbox.ts';
import { part } from '../support/part.ts';
import { closed, type Made, nextMessage, type Service, startService } from '../support/service.ts';
import { countStored } from '../support/stored.ts';

const t = await part(import.meta);

const mailbox = new Mailbox();
let service: Service;
t.before(async () => {
  service = await startService(t, { mail: mailbox });
});

const post = (body: object, token?: string) =>
  service.http('POST', '/api/v1/end-users', {
    body: { accountId: service.accountId, ...body },
    ...(token && { token }),
  });
const put = (endUser: Pick<Made<'endUser'>, 'id' | 'version' | 'organizationId'>, body: object, token?: string) =>
  service.http('PUT', `/api/v1/end-users/${endUser.id}`, {
    body: { organizationId: endUser.organizationId, ...body },
    headers: { etag: endUser.version },
    ...(token && { token }),
  });
const made = (organizationId: string, body: object = {}) =>
  service.create('/end-users', 'endUser', { organizationId, ...body });
const secretOf = async (endUser: Pick<Made<'endUser'>, 'id'>): Promise<string> => {
  const body = { entityId: endUser.id, entityType: 'endUser' };
  return (await service.create('/access/mqtt-credentials', 'mqttCredential', body)).secret;
};

t.test('an end-user is made without a person, is listed, filtered, deleted and recovered', async (t) => {
  const organization = await service.organization();
  const endUser = await made(organization.id, { name: 'Kiosk' });
  t.equal(endUser.userId, null);
  t.equal((await post({ organizationId: organization.id, userId: null, createIdmUser: false })).status, 200);
  const { endUser: person } = await service.endUser(organization.id);
  const list = async (filter: string) =>
    (
      await service.ok(
        'GET',
        `/api/v1/end-users?accountId=${service.accountId}&organizationId=${organization.id}${filter}`,
      )
    ).endUsers.results;
  t.equal((await list('')).length, 3);
  t.same(
    (await list('&userId=null')).map(({ userId }) => userId),
    [null, null],
  );
  t.same(
    (await list(`&userId=${person.userId}`)).map(({ id }) => id),
    [person.id],
  );
  t.match(await post({ organizationId: organization.id, idmUserEmail: 'x@example.com' }), {
    status: 400,
    body: { error: { code: 106, details: [{ path: 'createIdmUser' }] } },
  });

  const path = `/api/v1/end-users/${endUser.id}`;
  const { endUser: deleted } = await service.ok('DELETE', path, { headers: { etag: endUser.version } });
  const recover = `/api/v1/trash/end-users/${endUser.id}/recover`;
  const back = (await service.ok('POST', recover, { headers: { etag: deleted.version } })).endUser;
  t.equal(back.userId, null);
  t.same((await service.ok('GET', path)).endUser, back);
  const requests = [{ method: 'GET', path }];
  t.match(await service.ok('POST', '/api/v1/batch', { body: { requests } }), [{ endUser: { userId: null } }]);
});

t.test('it holds a secret for the broker, reaches what its organization holds, and owns devices', async (t) => {
  const [mine, theirs] = [await service.organization(), await service.organization()];
  const template = await service.template({ channels: ['data'] });
  const { device } = await service.device({ deviceTemplateId: template.id });
  const { device: other } = await service.device({ deviceTemplateId: template.id, organizationId: theirs.id });
  const endUser = await made(mine.id);
  const { associationCode } = await service.ok('POST', '/api/v1/association/create-association-code', {
    body: { deviceId: device.id },
  });
  const body = { associationCode, endUserId: endUser.id };
  await service.ok('POST', '/api/v1/association/start-association-with-code', { body });
  t.equal((await service.ok('GET', `/api/v1/devices/${device.id}`)).device.organizationId, mine.id);

  const secret = await secretOf(endUser);
  const client = await service.connect({ deviceId: endUser.id, secret });
  await client.subscribeAsync([service.topic(device.id, 'data'), service.topic(device.id, '_updates/fields')]);
  await t.rejects(client.subscribeAsync(service.topic(other.id, 'data')), 'of its own organization alone');
  const heard = nextMessage(client, (topic) => topic.endsWith('/data'));
  await client.publishAsync(service.topic(device.id, 'data'), '{"t":1}', { qos: 1 });
  t.equal((await heard).text, '{"t":1}');
  await client.publishAsync(service.topic(device.id, '_set/fields'), '{"state":{"location":"roof"}}', { qos: 1 });
  const changed = (await service.ok('GET', `/api/v1/devices/${device.id}`)).device;
  t.equal(changed.location, 'roof');
  t.equal(changed.lastModifiedById, endUser.id, 'in its own name');
  const allowed = { principal: { type: 'endUser', id: endUser.id }, action: 'publish' };
  const explain = (topic: string) =>
    service.ok('POST', '/api/v1/permissions/explain', { body: { ...allowed, topic } }).then((answer) => answer.allowed);
  t.equal(await explain(service.topic(device.id, 'data')), true);
  t.equal(await explain(service.topic(other.id, 'data')), false);

  const now = (await service.ok('GET', `/api/v1/end-users/${endUser.id}`)).endUser;
  const end = closed(client);
  await service.ok('DELETE', `/api/v1/end-users/${endUser.id}`, { headers: { etag: now.version } });
  await end;
  await t.rejects(service.connect({ deviceId: endUser.id, secret }), /Not authorized/);
});

t.test('a person is attached later: one who exists, or one who is invited', async (t) => {
  const organization = await service.organization();
  const elsewhere = await service.organization();
  const { endUser: known, token } = await service.endUser(elsewhere.id);
  const first = await made(organization.id);
  const secret = await secretOf(first);
  const client = await service.connect({ deviceId: first.id, secret });
  const attached = await put(first, { userId: known.userId });
  t.match(attached, { status: 200, body: { endUser: { userId: known.userId } } });
  t.equal((await service.http('GET', `/api/v1/organizations/${organization.id}`, { token })).status, 200);
  t.ok(client.connected, 'its own secret goes on');
  const whole = attached.body.endUser;
  t.equal((await put(whole, whole)).status, 200, 'a whole entity may come back');
  const { endUser: later } = await service.ok('GET', `/api/v1/end-users/${first.id}`);
  const another = (await service.endUser(elsewhere.id)).endUser;
  t.match(await put(later, { userId: another.userId }), {
    status: 400,
    body: { error: { details: [{ path: 'userId' }] } },
  });

  const second = await made(organization.id);
  const invitation = { createIdmUser: true, idmUserEmail: 'kiosk@example.com', idmUserProfile: { firstName: 'Kim' } };
  const invited = await put(second, invitation);
  t.match(invited, { status: 200, body: { endUser: { userId: String, invitationSent: true } } });
  const { userId } = invited.body.endUser;
  t.match(await service.ok('GET', `/api/v1/profile/${userId}`), {
    emailAddress: 'kiosk@example.com',
    firstName: 'Kim',
  });
  const newPassword = 'a long enough secret';
  await service.ok('POST', `/api/v1/users/${userId}/change-password-with-token`, {
    token: null,
    body: { newPassword, passwordResetToken: mailbox.tokenTo('kiosk@example.com') },
  });
  const { jwt } = await service.loginAs('kiosk@example.com', newPassword);
  t.equal((await service.http('GET', `/api/v1/organizations/${organization.id}`, { token: jwt })).status, 200);

  const third = await made(organization.id);
  const answers = await Promise.all(
    ['a@example.com', 'b@example.com'].map((idmUserEmail) => put(third, { createIdmUser: true, idmUserEmail })),
  );
  t.same(answers.map(({ status }) => status).sort(), [200, 412], 'one of two who come at once');
  const identities = countStored(service, 'identities', `"email" IN ('a@example.com', 'b@example.com')`);
  t.equal(identities, 1, 'and nobody is made in vain');
});

t.test('an end-user makes and attaches in its own organizations only, and only people it sees', async (t) => {
  const [mine, theirs] = [await service.organization(), await service.organization()];
  const { endUser, token } = await service.endUser(mine.id);
  const { endUser: stranger } = await service.endUser(theirs.id);
  const { body } = await post({ organizationId: mine.id }, token);
  t.equal(body.endUser.userId, null);
  t.match(await post({ organizationId: theirs.id }, token), { status: 400, body: { error: { code: 102 } } });
  const refused = { status: 400, body: { error: { code: 102, details: [{ path: 'userId' }] } } };
  t.match(await put(body.endUser, { userId: stranger.userId }, token), refused);
  t.match(await put(body.endUser, { userId: 'nobody' }, token), refused);
  t.match(await put(await made(theirs.id), { userId: endUser.userId }, token), { status: 404 });
  const credential = { accountId: service.accountId, entityId: body.endUser.id, entityType: 'endUser' };
  t.match(
    await service.http('POST', '/api/v1/access/mqtt-credentials', { body: credential, token }),
    { status: 400, body: { error: { code: 102 } } },
    'and makes no secret but its own',
  );
  t.equal((await put(body.endUser, { userId: endUser.userId }, token)).status, 200);
});

t.end();
