import { TOTP } from 'otpauth';
import type { Story } from '../story.ts';

export const identity: Story = {
  tell: async ({ t, next, service, mailbox, email, password, shell }) => {
    const sh = shell();
    const answer = async () => (await sh.answers(next())).at(-1);
    await sh.set({
      API: `${service.server.url}/api/v1`,
      ACCOUNT: service.accountId,
      TOKEN: service.admin,
      EMAIL: email,
      PASSWORD: password,
    });
    t.match(await answer(), { jwt: String, csrfToken: String }, 'login');
    const { application } = await answer();
    await sh.set({ APP: application.id, APP_TOKEN: application.appToken });
    t.match(await answer(), { jwt: String }, 'login of the program');
    await sh.set({ TEMPLATE: (await service.template()).id, ORGANIZATION: (await service.organization()).id });
    t.match(await answer(), { application: { kind: 'station', madeDevices: 0, appToken: String } }, 'a station');
    const { userId } = await answer();
    const { endUserTemplates } = await service.ok(
      'GET',
      `/api/v1/end-users/templates?accountId=${service.accountId}&default=true`,
    );
    const ada = (await service.loginAs('ada@example.com', 'a password of Ada')).jwt;
    await sh.set({ USER: userId, ADA: ada, END_USER_TEMPLATE: endUserTemplates.results[0].id });
    const { organization } = await answer();
    t.equal(organization.defaultEndUser.userId, userId, 'the first organization');
    await sh.set({ ORGANIZATION: organization.id });
    const { device } = await service.device();
    const made = await service.ok('POST', '/api/v1/association/create-association-code', {
      body: { deviceId: device.id },
    });
    await sh.set({ CODE: made.associationCode });
    t.match(await answer(), { jwt: String, deviceId: device.id }, 'signing up with a code');
    t.match(await answer(), { accountUser: { invitationSent: true } }, 'invitations');
    t.equal(mailbox.to('bob@example.com').length, 1);
    t.match(await answer(), { success: true, userId }, 'a reset');
    await sh.set({ RESET_TOKEN: mailbox.tokenTo('ada@example.com') });
    t.strictSame(await answer(), { success: true });
    const { jwt: token } = await service.loginAs('ada@example.com', 'another one of Ada');
    const { secret } = await service.ok('POST', `/api/v1/users/${userId}/mfa/totp`, { token });
    const totp = new TOTP({ secret });
    const code = totp.generate();
    await service.ok('POST', `/api/v1/users/${userId}/mfa/totp/confirm`, { token, body: { code } });
    const { mfaToken = '' } = await service.loginAs('ada@example.com', 'another one of Ada');
    // The service takes the next code too, for clocks that go fast.
    await sh.set({ MFA_TOKEN: mfaToken, CODE: totp.generate({ timestamp: Date.now() + 30_000 }) });
    t.match(await answer(), { jwt: String }, 'login with a second factor');
  },
};
