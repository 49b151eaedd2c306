/**
 * Every endpoint and every id that it takes, asked for by callers who must not reach what the id names: of another account, of other
 * organizations, without an end-user, an application for end-users and a station of this account, nobody.
 */
import { randomUUID } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import type { Test } from 'tap';
import { basic, derived } from '../enrollment/devices.ts';
import { rolloutUntil } from '../firmware/fleet.ts';
import { makeAuthority } from '../support/certificates.ts';
import { changeStored, leaveDeadLetter } from '../support/faults.ts';
import { documentOf, partOf } from '../support/openapi.ts';
import { part } from '../support/part.ts';
import {
  type Answer,
  type Made,
  nextMessage,
  present,
  type Service,
  startService,
  wrapped,
} from '../support/service.ts';
import { storedRows } from '../support/stored.ts';

const t = await part(import.meta);

/** Endpoints without an id of anything that is stored, and why. */
const withoutIds: Record<string, string> = {
  'GET /.well-known/jwks.json': 'public keys, for everybody',
  'GET /api/v1/crl/{authorityId}': 'what a CA has revoked, for everybody',
  'POST /api/v1/auth/login-user': 'the password decides, in test/identity/sessions.test.ts',
  'POST /api/v1/auth/login-application': 'the appToken decides, in test/identity/applications.test.ts',
  'POST /api/v1/auth/validate-jwt': 'says only whether the signature and the session are good',
  'GET /api/v1/auth/validate-jwt': 'the same',
  'POST /api/v1/sessions/renew-session': 'renews the session of the token that is sent, and names no other',
  'POST /api/v1/auth/mfa-trigger-auth': 'the mfaToken decides, in test/identity/mfa.test.ts',
  'POST /api/v1/auth/mfa-login-user': 'the mfaToken and the code decide, in test/identity/mfa.test.ts',
  'POST /api/v1/sessions/logout': 'ends the session of the token that is sent, and names no other',
  'GET /api/v1/oauth2/authorize':
    'redirects to the provider; the callback decides, in test/identity/federation.test.ts',
  'GET /api/v1/oauth2/callback': 'the provider decides, in test/identity/federation.test.ts',
  'GET /api/v1/oauth2/callback-url': 'it is the same for everybody',
  'POST /api/v1/auth/create-user': 'takes an appToken, in test/identity/users.test.ts',
  'POST /api/v1/auth/confirm-email': 'the token decides, in test/identity/profile.test.ts',
  'GET /api/v1/users/by-email/{email}/user-id': 'takes an appToken, in test/identity/password-reset.test.ts',
  'GET /api/v1/users/{userId}/password-reset-token': 'takes an appToken, in test/identity/password-reset.test.ts',
  'POST /api/v1/users/{userId}/change-password-with-token':
    'the token decides, in test/identity/password-reset.test.ts',
  'POST /api/v1/users/batch': 'leaves out whom the caller does not see, in test/identity/users.test.ts',
  'POST /api/v1/permissions/explain': 'asks of two things at once, in test/registry/explain.test.ts',
  'GET /api/v1/retention': 'of the account of the caller, in test/messages/keeping.test.ts',
  'PUT /api/v1/retention': 'the same',
  'GET /api/v1/usage': 'the same',
  'GET /api/v1/account/branding': 'what anyone may read, in test/registry/branding.test.ts',
  'PUT /api/v1/account/branding': 'of the account of the caller, in test/registry/branding.test.ts',
  'GET /api/v1/account/claiming': 'the same',
  'PUT /api/v1/account/claiming': 'the same',
  'POST /api/v1/association/look-up-code': 'the code decides, in test/registry/sign-up.test.ts',
  'POST /api/v1/association/sign-up-with-code': 'the same',
  'GET /api/v1/provisioning/addresses': 'of the service, in test/factory/one.test.ts',
  'POST /api/v1/logs/search': 'finds what the caller reaches, in test/messages/log-search.test.ts',
  'GET /api/v1/firmware/offer':
    'of the device that proves its secret or certificate, in test/firmware/rollouts.test.ts',
  'POST /api/v1/firmware/status': 'the same',
  'GET /api/v1/firmware/files/{sha256}': 'the signature or the secret decides, in test/firmware/rollouts.test.ts',
  'GET /api/v1/profile/me': 'of the caller itself, in test/identity/me.test.ts',
  'GET /api/v1/auth/default-account': 'the id of an only account, in test/identity/me.test.ts',
  'GET /api/v1/auth/login-providers': 'names that the sign-in page shows, in test/identity/me.test.ts',
  'POST /api/v1/auth/forgot-password': 'answers the same for everybody, in test/identity/me.test.ts',
  'POST /api/v1/enroll/renew': 'of the device itself, in test/enrollment/renewals.test.ts',
  'POST /api/v1/enroll': 'of a device that proves its group, in test/enrollment/exchange.test.ts',
  'POST /api/v1/tokens': 'of the caller itself, in test/identity/tokens.test.ts',
  'GET /api/v1/tokens': 'the same',
  'DELETE /api/v1/tokens/{id}': 'the same',
  'POST /api/v1/batch': 'the last test below sends the whole table through it',
};

/**
 * Operation | which parameter names what (a dash: a list of the caller's own account) | answers: a status and a code, `none` for an
 * empty list, `own` for one without anything of others. Without a token all are 401/30. `{kind}` stands for each of `families`.
 */
const table = `
  POST /api/v1/devices                              | body accountId: account                         | 404/100 | 403/21  | 403/21
  POST /api/v1/devices                              | body deviceTemplateId: deviceTemplate           | 400/102 | 403/21  | 403/21
  POST /api/v1/devices                              | body organizationId: organization               | 400/102 | 403/21  | 403/21
  GET /api/v1/devices                               | -                                               | own     | own     | 403/21
  GET /api/v1/devices                               | query accountId: account                        | 404/100 | 404/100 | 403/21
  GET /api/v1/devices                               | query deviceTemplateId: deviceTemplate          | none    | none    | 403/21
  GET /api/v1/devices                               | query organizationId: organization              | none    | none    | 403/21
  GET /api/v1/devices                               | query fleetId: fleet                            | 400/102 | 400/102 | 403/21
  GET /api/v1/devices/{id}                          | path id: device                                 | 404/100 | 404/100 | 403/21
  GET /api/v1/devices/{id}/fleets                   | path id: device                                 | 404/100 | 404/100 | 403/21
  PUT /api/v1/devices/{id}                          | path id: device                                 | 404/100 | 404/100 | 403/21
  PUT /api/v1/devices/{id}                          | body organizationId: organization               | 400/102 | 400/102 | 403/21
  DELETE /api/v1/devices/{id}                       | path id: device                                 | 404/100 | 403/21  | 403/21
  GET /api/v1/trash/devices                         | -                                               | own     | 403/21  | 403/21
  GET /api/v1/trash/devices                         | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/trash/devices/{id}                    | path id: device                                 | 404/100 | 403/21  | 403/21
  POST /api/v1/trash/devices/{id}/recover           | path id: device                                 | 404/100 | 403/21  | 403/21

  POST /api/v1/fleets                               | body accountId: account                         | 404/100 | 404/100 | 403/21
  POST /api/v1/fleets                               | body organizationId: organization               | 400/102 | 400/102 | 403/21
  GET /api/v1/fleets                                | -                                               | own     | own     | 403/21
  GET /api/v1/fleets                                | query accountId: account                        | 404/100 | 404/100 | 403/21
  GET /api/v1/fleets                                | query organizationId: organization              | none    | none    | 403/21
  GET /api/v1/fleets/{id}                           | path id: fleet                                  | 404/100 | 404/100 | 403/21
  PUT /api/v1/fleets/{id}                           | path id: fleet                                  | 404/100 | 404/100 | 403/21
  DELETE /api/v1/fleets/{id}                        | path id: fleet                                  | 404/100 | 404/100 | 403/21
  POST /api/v1/fleets/preview                       | body accountId: account                         | 404/100 | 404/100 | 403/21
  GET /api/v1/trash/fleets                          | -                                               | own     | own     | 403/21
  GET /api/v1/trash/fleets                          | query accountId: account                        | 404/100 | 404/100 | 403/21
  GET /api/v1/trash/fleets/{id}                     | path id: fleet                                  | 404/100 | 404/100 | 403/21
  POST /api/v1/trash/fleets/{id}/recover            | path id: fleet                                  | 404/100 | 404/100 | 403/21

  POST /api/v1/end-users                            | body accountId: account                         | 404/100 | 404/100 | 403/21
  POST /api/v1/end-users                            | body organizationId: organization               | 400/102 | 400/102 | 403/21
  POST /api/v1/end-users                            | body userId: identity                           | 400/102 | 400/102 | 403/21
  POST /api/v1/end-users                            | body roleId: role                               | 400/102 | 400/102 | 403/21
  POST /api/v1/end-users                            | body endUserTemplateId: endUserTemplate         | 400/102 | 400/102 | 403/21
  GET /api/v1/end-users                             | -                                               | own     | own     | 403/21
  GET /api/v1/end-users                             | query accountId: account                        | 404/100 | 404/100 | 403/21
  GET /api/v1/end-users                             | query endUserTemplateId: endUserTemplate        | none    | none    | 403/21
  GET /api/v1/end-users                             | query organizationId: organization              | none    | none    | 403/21
  GET /api/v1/end-users                             | query userId: identity                          | none    | none    | 403/21
  GET /api/v1/end-users/{id}                        | path id: endUser                                | 404/100 | 404/100 | 403/21
  PUT /api/v1/end-users/{id}                        | path id: endUser                                | 404/100 | 404/100 | 403/21
  PUT /api/v1/end-users/{id}                        | body organizationId: organization               | 400/102 | 400/102 | 403/21
  PUT /api/v1/end-users/{id}                        | body roleId: role                               | 400/102 | 400/102 | 403/21
  PUT /api/v1/end-users/{id}                        | body userId: identity                           | 400/106 | 400/106 | 403/21
  DELETE /api/v1/end-users/{id}                     | path id: endUser                                | 404/100 | 404/100 | 403/21
  GET /api/v1/trash/end-users                       | -                                               | own     | own     | 403/21
  GET /api/v1/trash/end-users                       | query accountId: account                        | 404/100 | 404/100 | 403/21
  GET /api/v1/trash/end-users/{id}                  | path id: endUser                                | 404/100 | 404/100 | 403/21
  POST /api/v1/trash/end-users/{id}/recover         | path id: endUser                                | 404/100 | 404/100 | 403/21

  POST /api/v1/organizations                        | body accountId: account                         | 404/100 | 404/100 | 404/100
  POST /api/v1/organizations                        | body parentId: organization                     | 400/102 | 400/102 | 403/21
  POST /api/v1/organizations                        | body organizationTemplateId: organizationTemplate | 400/102 | 400/102 | 400/102
  POST /api/v1/organizations                        | body endUserTemplateId: endUserTemplate         | 400/110 | 400/102 | 400/102
  GET /api/v1/organizations                         | -                                               | own     | own     | 403/21
  GET /api/v1/organizations                         | query accountId: account                        | 404/100 | 404/100 | 403/21
  GET /api/v1/organizations                         | query parentId: organization                    | none    | none    | 403/21
  GET /api/v1/organizations                         | query organizationTemplateId: organizationTemplate | none | none    | 403/21
  GET /api/v1/organizations/{id}                    | path id: organization                           | 404/100 | 404/100 | 403/21
  PUT /api/v1/organizations/{id}                    | path id: organization                           | 404/100 | 404/100 | 403/21
  PUT /api/v1/organizations/{id}                    | body parentId: organization                     | 400/102 | 400/102 | 403/21
  DELETE /api/v1/organizations/{id}                 | path id: organization                           | 404/100 | 404/100 | 403/21
  GET /api/v1/trash/organizations                   | -                                               | own     | own     | 403/21
  GET /api/v1/trash/organizations                   | query accountId: account                        | 404/100 | 404/100 | 403/21
  GET /api/v1/trash/organizations/{id}              | path id: organization                           | 404/100 | 404/100 | 403/21
  POST /api/v1/trash/organizations/{id}/recover     | path id: organization                           | 404/100 | 404/100 | 403/21

  POST /api/v1/{kind}/templates                     | body accountId: account                         | 404/100 | 403/21  | 403/21
  GET /api/v1/{kind}/templates                      | -                                               | own     | 403/21  | 403/21
  GET /api/v1/{kind}/templates                      | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/{kind}/templates/{id}                 | path id: {one}Template                          | 404/100 | 403/21  | 403/21
  PUT /api/v1/{kind}/templates/{id}                 | path id: {one}Template                          | 404/100 | 403/21  | 403/21
  DELETE /api/v1/{kind}/templates/{id}              | path id: {one}Template                          | 404/100 | 403/21  | 403/21
  GET /api/v1/trash/{kind}/templates                | -                                               | own     | 403/21  | 403/21
  GET /api/v1/trash/{kind}/templates                | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/trash/{kind}/templates/{id}           | path id: {one}Template                          | 404/100 | 403/21  | 403/21
  POST /api/v1/trash/{kind}/templates/{id}/recover  | path id: {one}Template                          | 404/100 | 403/21  | 403/21

  POST /api/v1/{fields}                             | body accountId: account                         | 404/100 | 403/21  | 403/21
  GET /api/v1/{fields}                              | -                                               | own     | 403/21  | 403/21
  GET /api/v1/{fields}                              | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/{fields}/{id}                         | path id: {field}                                | 404/100 | 403/21  | 403/21
  PUT /api/v1/{fields}/{id}                         | path id: {field}                                | 404/100 | 403/21  | 403/21
  PUT /api/v1/{fields}/{id}                         | body accountId: account                         | 404/100 | 403/21  | 403/21
  DELETE /api/v1/{fields}/{id}                      | path id: {field}                                | 404/100 | 403/21  | 403/21
  GET /api/v1/trash/{fields}                        | -                                               | own     | 403/21  | 403/21
  GET /api/v1/trash/{fields}                        | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/trash/{fields}/{id}                   | path id: {field}                                | 404/100 | 403/21  | 403/21
  POST /api/v1/trash/{fields}/{id}/recover          | path id: {field}                                | 404/100 | 403/21  | 403/21
  POST /api/v1/{kind}/custom-fields                 | body {one}TemplateId: {one}Template             | 400/102 | 403/21  | 403/21
  GET /api/v1/{kind}/custom-fields                  | query {one}TemplateId: {one}Template            | none    | 403/21  | 403/21
  PUT /api/v1/{kind}/custom-fields/{id}             | body {one}TemplateId: {one}Template             | 400/106 | 403/21  | 403/21

  POST /api/v1/channels/templates                   | body accountId: account                         | 404/100 | 403/21  | 403/21
  POST /api/v1/channels/templates                   | body entityId: deviceTemplate                   | 400/102 | 403/21  | 403/21
  GET /api/v1/channels/templates                    | -                                               | own     | 403/21  | 403/21
  GET /api/v1/channels/templates                    | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/channels/templates                    | query entityId: deviceTemplate                  | none    | 403/21  | 403/21
  GET /api/v1/channels/templates/{id}               | path id: channelTemplate                        | 404/100 | 403/21  | 403/21
  PUT /api/v1/channels/templates/{id}               | path id: channelTemplate                        | 404/100 | 403/21  | 403/21
  DELETE /api/v1/channels/templates/{id}            | path id: channelTemplate                        | 404/100 | 403/21  | 403/21
  GET /api/v1/trash/channels/templates              | -                                               | own     | 403/21  | 403/21
  GET /api/v1/trash/channels/templates              | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/trash/channels/templates/{id}         | path id: channelTemplate                        | 404/100 | 403/21  | 403/21
  POST /api/v1/trash/channels/templates/{id}/recover | path id: channelTemplate                       | 404/100 | 403/21  | 403/21

  POST /api/v1/account-users                        | body accountId: account                         | 404/100 | 403/21  | 403/21
  POST /api/v1/account-users                        | body userId: identity                           | 400/102 | 403/21  | 403/21
  GET /api/v1/account-users                         | -                                               | own     | 403/21  | 403/21
  GET /api/v1/account-users                         | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/account-users                         | query userId: admin                             | none    | 403/21  | 403/21
  GET /api/v1/account-users/{id}                    | path id: accountUser                            | 404/100 | 403/21  | 403/21
  DELETE /api/v1/account-users/{id}                 | path id: accountUser                            | 404/100 | 403/21  | 403/21
  POST /api/v1/account-users                        | body roleId: role                               | 400/102 | 403/21  | 403/21
  PUT /api/v1/account-users/{id}                    | path id: accountUser                            | 404/100 | 403/21  | 403/21
  PUT /api/v1/account-users/{id}                    | body roleId: role                               | 400/102 | 403/21  | 403/21

  POST /api/v1/roles                                | body accountId: account                         | 404/100 | 403/21  | 403/21
  GET /api/v1/roles                                 | -                                               | own     | own     | 403/21
  GET /api/v1/roles                                 | query accountId: account                        | 404/100 | 404/100 | 403/21
  GET /api/v1/roles/{id}                            | path id: role                                   | 404/100 | 404/100 | 403/21
  PUT /api/v1/roles/{id}                            | path id: role                                   | 404/100 | 403/21  | 403/21
  DELETE /api/v1/roles/{id}                         | path id: role                                   | 404/100 | 403/21  | 403/21
  GET /api/v1/trash/roles                           | -                                               | own     | 403/21  | 403/21
  GET /api/v1/trash/roles                           | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/trash/roles/{id}                      | path id: role                                   | 404/100 | 403/21  | 403/21
  POST /api/v1/trash/roles/{id}/recover             | path id: role                                   | 404/100 | 403/21  | 403/21

  POST /api/v1/applications                         | body accountId: account                         | 404/100 | 403/21  | 403/21
  POST /api/v1/applications                         | body deviceTemplateId: deviceTemplate           | 400/102 | 403/21  | 403/21
  POST /api/v1/applications                         | body organizationId: organization               | 400/102 | 403/21  | 403/21
  GET /api/v1/applications                          | -                                               | own     | 403/21  | 403/21
  GET /api/v1/applications                          | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/applications/{id}                     | path id: application                            | 404/100 | 403/21  | 403/21
  DELETE /api/v1/applications/{id}                  | path id: application                            | 404/100 | 403/21  | 403/21
  POST /api/v1/applications                         | body roleId: role                               | 400/102 | 403/21  | 403/21
  PUT /api/v1/applications/{id}                     | path id: application                            | 404/100 | 403/21  | 403/21
  PUT /api/v1/applications/{id}                     | body roleId: role                               | 400/102 | 403/21  | 403/21
  GET /api/v1/audit                                 | -                                               | own     | 403/21  | 403/21
  GET /api/v1/audit                                 | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/audit                                 | query actorId: admin                            | none    | 403/21  | 403/21
  GET /api/v1/audit                                 | query targetId: application                     | none    | 403/21  | 403/21
  POST /api/v1/identity-providers                   | body accountId: account                         | 404/100 | 403/21  | 403/21
  GET /api/v1/identity-providers                    | -                                               | own     | 403/21  | 403/21
  GET /api/v1/identity-providers                    | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/identity-providers/{id}               | path id: identityProvider                       | 404/100 | 403/21  | 403/21
  PUT /api/v1/identity-providers/{id}               | path id: identityProvider                       | 404/100 | 403/21  | 403/21
  DELETE /api/v1/identity-providers/{id}            | path id: identityProvider                       | 404/100 | 403/21  | 403/21
  POST /api/v1/identity-providers/{id}/scim-token   | path id: identityProvider                       | 404/100 | 403/21  | 403/21

  POST /api/v1/bridges                              | body accountId: account                         | 404/100 | 403/21  | 403/21
  GET /api/v1/bridges                               | -                                               | own     | 403/21  | 403/21
  GET /api/v1/bridges                               | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/bridges/{id}                          | path id: bridge                                 | 404/100 | 403/21  | 403/21
  PUT /api/v1/bridges/{id}                          | path id: bridge                                 | 404/100 | 403/21  | 403/21
  DELETE /api/v1/bridges/{id}                       | path id: bridge                                 | 404/100 | 403/21  | 403/21
  GET /api/v1/bridges/{id}/dead-letters             | path id: bridge                                 | 404/100 | 403/21  | 403/21
  POST /api/v1/bridges/{id}/replay                  | path id: bridge                                 | 404/100 | 403/21  | 403/21
  POST /api/v1/bridges/{id}/test                    | path id: bridge                                 | 404/100 | 403/21  | 403/21

  POST /api/v1/provisioning/jobs                    | query accountId: account                        | 404/100 | 403/21  | 403/21
  POST /api/v1/provisioning/jobs                    | query template: deviceTemplate                  | 400/102 | 403/21  | 403/21
  POST /api/v1/provisioning/jobs                    | query organization: organization                | 400/102 | 403/21  | 403/21
  GET /api/v1/provisioning/jobs                     | -                                               | own     | 403/21  | 403/21
  GET /api/v1/provisioning/jobs                     | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/provisioning/jobs/{id}                | path id: job                                    | 404/100 | 403/21  | 403/21
  GET /api/v1/provisioning/jobs/{id}/rows           | path id: job                                    | 404/100 | 403/21  | 403/21
  GET /api/v1/provisioning/jobs/{id}/events         | path id: job                                    | 404/100 | 403/21  | 403/21
  POST /api/v1/provisioning/jobs/{id}/cancel        | path id: job                                    | 404/100 | 403/21  | 403/21
  POST /api/v1/provisioning/jobs/{id}/retry         | path id: job                                    | 404/100 | 403/21  | 403/21
  GET /api/v1/provisioning/jobs/{id}/results        | path id: job                                    | 404/100 | 403/21  | 403/21
  GET /api/v1/provisioning/jobs/{id}/labels         | path id: job                                    | 404/100 | 403/21  | 403/21
  POST /api/v1/provisioning/jobs/{id}/results/confirm | path id: job                                  | 404/100 | 403/21  | 403/21
  POST /api/v1/provisioning/jobs/{id}/undo          | path id: job                                    | 404/100 | 403/21  | 403/21
  POST /api/v1/devices/jobs                         | body accountId: account                         | 404/100 | 403/21  | 403/21
  POST /api/v1/devices/jobs                         | body organizationId: organization               | 400/102 | 403/21  | 403/21
  POST /api/v1/devices/jobs                         | body fleetId: fleet                             | 400/102 | 403/21  | 403/21
  POST /api/v1/devices/jobs/{id}/undo               | path id: job                                    | 404/100 | 403/21  | 403/21
  POST /api/v1/commands/bulk                        | body accountId: account                         | 404/100 | 403/21  | 403/21
  POST /api/v1/commands/bulk                        | body fleetId: fleet                             | 400/102 | 403/21  | 403/21

  POST /api/v1/access/mqtt-credentials              | body accountId: account                         | 404/100 | 404/100 | 403/21
  POST /api/v1/access/mqtt-credentials              | body entityId: device                           | 400/102 | 400/102 | 403/21
  POST /api/v1/access/mqtt-credentials              | body entityId: endUser                          | 400/102 | 400/102 | 403/21
  POST /api/v1/access/mqtt-credentials              | body entityId: accountUser                      | 400/102 | 400/102 | 403/21
  POST /api/v1/access/mqtt-certificates             | body accountId: account                         | 404/100 | 403/21  | 403/21
  POST /api/v1/access/mqtt-certificates             | body entityId: device                           | 400/102 | 403/21  | 403/21
  GET /api/v1/access/mqtt-certificates              | -                                               | own     | 403/21  | 403/21
  GET /api/v1/access/mqtt-certificates              | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/access/mqtt-certificates              | query entityId: device                          | none    | 403/21  | 403/21
  GET /api/v1/access/mqtt-certificates              | query certificateAuthorityId: certificateAuthority | none  | 403/21  | 403/21
  GET /api/v1/access/mqtt-certificates/{id}         | path id: mqttCertificate                        | 404/100 | 403/21  | 403/21
  DELETE /api/v1/access/mqtt-certificates/{id}      | path id: mqttCertificate                        | 404/100 | 403/21  | 403/21
  POST /api/v1/access/certificate-authorities       | body accountId: account                         | 404/100 | 403/21  | 403/21
  POST /api/v1/access/certificate-authorities       | body deviceTemplateId: deviceTemplate           | 400/102 | 403/21  | 403/21
  POST /api/v1/access/certificate-authorities       | body organizationId: organization               | 400/102 | 403/21  | 403/21
  GET /api/v1/access/certificate-authorities        | -                                               | own     | 403/21  | 403/21
  GET /api/v1/access/certificate-authorities        | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/access/certificate-authorities/{id}   | path id: certificateAuthority                   | 404/100 | 403/21  | 403/21
  PUT /api/v1/access/certificate-authorities/{id}   | path id: certificateAuthority                   | 404/100 | 403/21  | 403/21
  PUT /api/v1/access/certificate-authorities/{id}   | body deviceTemplateId: deviceTemplate           | 400/102 | 403/21  | 403/21
  PUT /api/v1/access/certificate-authorities/{id}   | body organizationId: organization               | 400/102 | 403/21  | 403/21
  DELETE /api/v1/access/certificate-authorities/{id}| path id: certificateAuthority                   | 404/100 | 403/21  | 403/21
  POST /api/v1/access/certificate-authorities/{id}/proof | path id: certificateAuthority              | 404/100 | 403/21  | 403/21
  POST /api/v1/access/certificate-authorities/{id}/issue | path id: certificateAuthority              | 404/100 | 403/21  | 403/21
  POST /api/v1/access/certificate-authorities/{id}/issue | body deviceId: device                      | 400/102 | 403/21  | 403/21
  PUT /api/v1/access/certificate-authorities/{id}/certificate | path id: certificateAuthority         | 404/100 | 403/21  | 403/21
  PUT /api/v1/access/certificate-authorities/{id}/crl | path id: certificateAuthority                 | 404/100 | 403/21  | 403/21

  POST /api/v1/enrollment-groups                    | body accountId: account                         | 404/100 | 403/21  | 403/21
  POST /api/v1/enrollment-groups                    | body deviceTemplateId: deviceTemplate           | 400/102 | 403/21  | 403/21
  POST /api/v1/enrollment-groups                    | body organizationId: organization               | 400/102 | 403/21  | 403/21
  POST /api/v1/enrollment-groups                    | body proofAuthorityId: certificateAuthority     | 400/102 | 403/21  | 403/21
  POST /api/v1/enrollment-groups                    | body certificateAuthorityId: certificateAuthority| 400/102 | 403/21  | 403/21
  GET /api/v1/enrollment-groups                     | -                                               | own     | 403/21  | 403/21
  GET /api/v1/enrollment-groups                     | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/enrollment-groups                     | query deviceTemplateId: deviceTemplate          | none    | 403/21  | 403/21
  GET /api/v1/enrollment-groups/{id}                | path id: enrollmentGroup                        | 404/100 | 403/21  | 403/21
  PUT /api/v1/enrollment-groups/{id}                | path id: enrollmentGroup                        | 404/100 | 403/21  | 403/21
  PUT /api/v1/enrollment-groups/{id}                | body deviceTemplateId: deviceTemplate           | 400/102 | 403/21  | 403/21
  PUT /api/v1/enrollment-groups/{id}                | body organizationId: organization               | 400/102 | 403/21  | 403/21
  PUT /api/v1/enrollment-groups/{id}                | body proofAuthorityId: certificateAuthority     | 400/106 | 403/21  | 403/21
  PUT /api/v1/enrollment-groups/{id}                | body certificateAuthorityId: certificateAuthority| 400/102 | 403/21  | 403/21
  DELETE /api/v1/enrollment-groups/{id}             | path id: enrollmentGroup                        | 404/100 | 403/21  | 403/21
  POST /api/v1/enrollment-groups/{id}/regenerate    | path id: enrollmentGroup                        | 404/100 | 403/21  | 403/21
  GET /api/v1/enrollment-groups/{id}/refusals       | path id: enrollmentGroup                        | 404/100 | 403/21  | 403/21
  GET /api/v1/enrollment-groups/{id}/devices        | path id: enrollmentGroup                        | 404/100 | 403/21  | 403/21
  GET /api/v1/trash/enrollment-groups               | -                                               | own     | 403/21  | 403/21
  GET /api/v1/trash/enrollment-groups               | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/trash/enrollment-groups/{id}          | path id: enrollmentGroup                        | 404/100 | 403/21  | 403/21
  POST /api/v1/trash/enrollment-groups/{id}/recover | path id: enrollmentGroup                        | 404/100 | 403/21  | 403/21
  POST /api/v1/devices/{id}/allow-enrollment        | path id: device                                 | 404/100 | 403/21  | 403/21
  POST /api/v1/association/create-association-code  | body deviceId: device                           | 404/100 | 403/21  | 403/21
  POST /api/v1/association/start-association-with-code | body associationCode: code                   | 404/100 | 422/106 | 403/21
  POST /api/v1/association/start-association-with-code | body endUserId: endUser                      | 400/102 | 400/102 | 403/21
  POST /api/v1/association/start-association-with-code | body organizationId: organization            | 400/102 | 400/102 | 403/21
  POST /api/v1/association/give-away                | body deviceId: device                           | 404/100 | 404/100 | 403/21
  GET /api/v1/association/give-away/{deviceId}      | path deviceId: device                           | 404/100 | 404/100 | 403/21
  DELETE /api/v1/association/give-away/{deviceId}   | path deviceId: device                           | 404/100 | 404/100 | 403/21
  POST /api/v1/devices/{id}/support                 | path id: device                                 | 404/100 | 404/100 | 403/21
  GET /api/v1/devices/{id}/support                  | path id: device                                 | 404/100 | 403/21  | 403/21
  DELETE /api/v1/devices/{id}/support/{supportId}   | path id: device                                 | 404/100 | 403/21  | 403/21
  POST /api/v1/devices/{id}/replace                 | path id: device                                 | 404/100 | 403/21  | 403/21
  POST /api/v1/provisioning/verify                  | body deviceId: device                           | 404/100 | 403/21  | 403/21
  GET /api/v1/provisioning/verifications            | -                                               | own     | 403/21  | 403/21
  GET /api/v1/provisioning/verifications            | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/provisioning/verifications            | query deviceId: device                          | none    | 403/21  | 403/21
  GET /api/v1/devices/{id}/logs                     | path id: device                                 | 404/100 | 404/100 | 403/21
  POST /api/v1/devices/{id}/logs                    | path id: device                                 | 404/100 | 403/21  | 403/21
  GET /api/v1/devices/{id}/connectivity             | path id: device                                 | 404/100 | 404/100 | 403/21
  GET /api/v1/devices/counts                        | query accountId: account                        | 404/100 | 404/100 | 403/21
  GET /api/v1/search                                | query accountId: account                        | 404/100 | 404/100 | 403/21
  GET /api/v1/devices/{id}/refusals                 | path id: device                                 | 404/100 | 404/100 | 403/21
  GET /api/v1/refusals                              | -                                               | own     | 403/21  | 403/21
  GET /api/v1/refusals                              | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/refusals                              | query deviceId: device                          | none    | 403/21  | 403/21
  GET /api/v1/overview                              | query accountId: account                        | 404/100 | 404/100 | 403/21
  GET /api/v4/data/{topic}                          | path topic: topic                               | 404/100 | 404/100 | 403/21
  POST /api/v4/data/{topic}                         | path topic: topic                               | 404/100 | 404/100 | 403/21
  POST /api/v1/messaging/publish/{topic}            | path topic: topic                               | 404/100 | 404/100 | 403/21
  GET /api/v1/stream                                | query topics: topic                             | 404/100 | 404/100 | 403/21

  POST /api/v1/firmware/packages                    | body accountId: account                         | 404/100 | 403/21  | 403/21
  POST /api/v1/firmware/packages                    | body deviceTemplateId: deviceTemplate           | 400/102 | 403/21  | 403/21
  GET /api/v1/firmware/packages                     | -                                               | own     | 403/21  | 403/21
  GET /api/v1/firmware/packages                     | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/firmware/packages                     | query deviceTemplateId: deviceTemplate          | none    | 403/21  | 403/21
  GET /api/v1/firmware/packages/{id}                | path id: firmwarePackage                        | 404/100 | 403/21  | 403/21
  PUT /api/v1/firmware/packages/{id}                | path id: firmwarePackage                        | 404/100 | 403/21  | 403/21
  DELETE /api/v1/firmware/packages/{id}             | path id: firmwarePackage                        | 404/100 | 403/21  | 403/21
  POST /api/v1/firmware/packages/{id}/publish       | path id: firmwarePackage                        | 404/100 | 403/21  | 403/21
  POST /api/v1/firmware/packages/{id}/retire        | path id: firmwarePackage                        | 404/100 | 403/21  | 403/21
  PUT /api/v1/firmware/packages/{id}/files/{name}   | path id: firmwarePackage                        | 404/100 | 403/21  | 403/21
  GET /api/v1/firmware/packages/{id}/files/{name}   | path id: firmwarePackage                        | 404/100 | 403/21  | 403/21
  DELETE /api/v1/firmware/packages/{id}/files/{name} | path id: firmwarePackage                       | 404/100 | 403/21  | 403/21
  GET /api/v1/trash/firmware/packages               | -                                               | own     | 403/21  | 403/21
  GET /api/v1/trash/firmware/packages               | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/trash/firmware/packages/{id}          | path id: firmwarePackage                        | 404/100 | 403/21  | 403/21
  POST /api/v1/trash/firmware/packages/{id}/recover | path id: firmwarePackage                        | 404/100 | 403/21  | 403/21

  POST /api/v1/firmware/rollouts                    | body accountId: account                         | 404/100 | 403/21  | 403/21
  POST /api/v1/firmware/rollouts                    | body firmwarePackageId: firmwarePackage         | 400/102 | 403/21  | 403/21
  POST /api/v1/firmware/rollouts/preview            | body accountId: account                         | 404/100 | 403/21  | 403/21
  POST /api/v1/firmware/rollouts/preview            | body firmwarePackageId: firmwarePackage         | 400/102 | 403/21  | 403/21
  GET /api/v1/firmware/rollouts                     | -                                               | own     | 403/21  | 403/21
  GET /api/v1/firmware/rollouts                     | query accountId: account                        | 404/100 | 403/21  | 403/21
  GET /api/v1/firmware/rollouts                     | query firmwarePackageId: firmwarePackage        | none    | 403/21  | 403/21
  GET /api/v1/firmware/rollouts/{id}                | path id: firmwareRollout                        | 404/100 | 403/21  | 403/21
  GET /api/v1/firmware/rollouts/{id}/devices        | path id: firmwareRollout                        | 404/100 | 403/21  | 403/21
  GET /api/v1/firmware/rollouts/{id}/events         | path id: firmwareRollout                        | 404/100 | 403/21  | 403/21
  POST /api/v1/firmware/rollouts/{id}/pause         | path id: firmwareRollout                        | 404/100 | 403/21  | 403/21
  POST /api/v1/firmware/rollouts/{id}/resume        | path id: firmwareRollout                        | 404/100 | 403/21  | 403/21
  POST /api/v1/firmware/rollouts/{id}/cancel        | path id: firmwareRollout                        | 404/100 | 403/21  | 403/21
  POST /api/v1/firmware/rollouts/{id}/retry         | path id: firmwareRollout                        | 404/100 | 403/21  | 403/21
  POST /api/v1/firmware/rollouts/{id}/revert        | path id: firmwareRollout                        | 404/100 | 403/21  | 403/21
  GET /api/v1/devices/{id}/firmware                 | path id: device                                 | 404/100 | 404/100 | 403/21
  POST /api/v1/devices/{id}/firmware/install        | path id: device                                 | 404/100 | 404/100 | 403/21
  POST /api/v1/devices/{id}/firmware                | path id: device                                 | 404/100 | 403/21  | 403/21
  POST /api/v1/devices/{id}/firmware                | body packageId: firmwarePackage                 | 400/102 | 403/21  | 403/21
  GET /api/v1/devices/{id}/firmware/history         | path id: device                                 | 404/100 | 404/100 | 403/21

  POST /api/v1/devices/{id}/commands                | path id: device                                 | 404/100 | 404/100 | 403/21
  GET /api/v1/devices/{id}/commands                 | path id: device                                 | 404/100 | 404/100 | 403/21
  GET /api/v1/devices/{id}/commands/{commandId}     | path id: device                                 | 404/100 | 404/100 | 403/21
  DELETE /api/v1/devices/{id}/commands/{commandId}  | path id: device                                 | 404/100 | 404/100 | 403/21

  POST /api/v1/users/{userId}/mfa/totp              | path userId: identity                           | 404/NotFoundError | 404/NotFoundError | 404/NotFoundError
  POST /api/v1/users/{userId}/mfa/sms               | path userId: identity                           | 404/NotFoundError | 404/NotFoundError | 404/NotFoundError
  POST /api/v1/users/{userId}/mfa/sms/code          | path userId: identity                           | 404/NotFoundError | 404/NotFoundError | 404/NotFoundError
  POST /api/v1/users/{userId}/mfa/totp/confirm      | path userId: identity                           | 404/NotFoundError | 404/NotFoundError | 404/NotFoundError
  POST /api/v1/users/{userId}/mfa/sms/confirm       | path userId: identity                           | 404/NotFoundError | 404/NotFoundError | 404/NotFoundError
  DELETE /api/v1/users/{userId}/mfa/totp            | path userId: identity                           | 404/NotFoundError | 404/NotFoundError | 404/NotFoundError
  DELETE /api/v1/users/{userId}/mfa/sms             | path userId: identity                           | 404/NotFoundError | 404/NotFoundError | 404/NotFoundError
  GET /api/v1/profile/{userId}                      | path userId: identity  | 404/NotFoundError | 404/NotFoundError  | 404/NotFoundError
  POST /api/v1/profile/update                       | body userId: identity  | 404/NotFoundError | 404/NotFoundError  | 404/NotFoundError
  POST /api/v1/profile/change-password              | body userId: identity  | 404/NotFoundError | 404/NotFoundError  | 404/NotFoundError
  POST /api/v1/profile/update-email-address         | body userId: identity  | 404/NotFoundError | 404/NotFoundError  | 404/NotFoundError
  GET /api/v1/users/{userId}/security               | path userId: identity  | 404/NotFoundError | 404/NotFoundError  | 404/NotFoundError
  POST /api/v1/users/{userId}/end-sessions          | path userId: identity  | 404/NotFoundError | 404/NotFoundError  | 404/NotFoundError
  DELETE /api/v1/internal/users/{userId}            | path userId: identity  | 404/NotFoundError | 403/ForbiddenError | 403/ForbiddenError
`;
const who = ['stranger', 'outsider', 'newcomer', 'strangerProgram', 'program', 'station'] as const;

/** What a station may do at all, with the answers when what it names is not its own; everything else is 403. */
const ofStations: Record<string, string> = {
  'POST /api/v1/devices, body accountId: account': '404/100',
  'POST /api/v1/devices, body deviceTemplateId: deviceTemplate': '400/102',
  'POST /api/v1/devices, body organizationId: organization': '400/102',
  'GET /api/v1/devices, -': 'none',
  'GET /api/v1/devices, query accountId: account': '404/100',
  'GET /api/v1/devices, query deviceTemplateId: deviceTemplate': 'none',
  'GET /api/v1/devices, query organizationId: organization': 'none',
  'GET /api/v1/devices, query fleetId: fleet': '400/102',
  'GET /api/v1/devices/{id}, path id: device': '404/100',
  'GET /api/v1/devices/{id}/fleets, path id: device': '404/100',
  'POST /api/v1/fleets/preview, body accountId: account': '404/100',
  'GET /api/v1/devices/{id}/connectivity, path id: device': '404/100',
  'POST /api/v1/access/mqtt-credentials, body accountId: account': '404/100',
  'POST /api/v1/access/mqtt-credentials, body entityId: device': '400/102',
  'POST /api/v1/access/mqtt-credentials, body entityId: endUser': '400/102',
  'POST /api/v1/access/mqtt-credentials, body entityId: accountUser': '400/102',
  'POST /api/v1/access/certificate-authorities/{id}/issue, path id: certificateAuthority': '404/100',
  'POST /api/v1/access/certificate-authorities/{id}/issue, body deviceId: device': '400/102',
  'POST /api/v1/association/create-association-code, body deviceId: device': '404/100',
  'POST /api/v1/devices/{id}/support, path id: device': '404/100',
  'POST /api/v1/provisioning/verify, body deviceId: device': '404/100',
  'POST /api/v1/provisioning/jobs, query accountId: account': '404/100',
  'POST /api/v1/provisioning/jobs, query template: deviceTemplate': '400/102',
  'POST /api/v1/provisioning/jobs, query organization: organization': '400/102',
  'GET /api/v1/provisioning/jobs, -': 'none',
  'GET /api/v1/provisioning/jobs, query accountId: account': '404/100',
  'GET /api/v1/provisioning/jobs/{id}, path id: job': '404/100',
  'GET /api/v1/provisioning/jobs/{id}/rows, path id: job': '404/100',
  'GET /api/v1/provisioning/jobs/{id}/events, path id: job': '404/100',
  'POST /api/v1/provisioning/jobs/{id}/cancel, path id: job': '404/100',
  'POST /api/v1/provisioning/jobs/{id}/retry, path id: job': '404/100',
  'GET /api/v1/provisioning/jobs/{id}/results, path id: job': '404/100',
  'GET /api/v1/provisioning/jobs/{id}/labels, path id: job': '404/100',
  'POST /api/v1/provisioning/jobs/{id}/results/confirm, path id: job': '404/100',
};
/** Behind authentication and about nothing but the session of the token that is sent, requests of their own, or the service. */
const ofSessions = [
  'POST /api/v1/sessions/renew-session',
  'POST /api/v1/sessions/logout',
  'POST /api/v1/batch',
  'GET /api/v1/profile/me',
  'GET /api/v1/provisioning/addresses',
  'POST /api/v1/tokens',
  'GET /api/v1/tokens',
  'DELETE /api/v1/tokens/{id}',
];
/** Bodies of endpoints without an id of anything that is stored. */
const plainBodies: Record<string, object> = {
  'POST /api/v1/enroll/renew': {},
  'POST /api/v1/users/batch': { userIds: [] },
  'POST /api/v1/permissions/explain': { principal: { type: 'user', id: 'x' }, action: 'publish', topic: 'x' },
  'PUT /api/v1/retention': { retentionDays: 1 },
  'PUT /api/v1/account/branding': {},
  'PUT /api/v1/account/claiming': { signUp: true },
  'POST /api/v1/firmware/status': { state: 'downloading' },
  'POST /api/v1/logs/search': { query: { bool: { must: [] } } },
  'POST /api/v1/auth/forgot-password': { accountId: 'x', emailAddress: 'x@example.com' },
  'POST /api/v1/auth/create-user': { emailAddress: 'x@example.com', password: 'a fine long secret' },
};

const families = [
  ['{kind}', '{one}', 'devices device', 'end-users endUser', 'organizations organization'],
  [
    '{fields}',
    '{field}',
    'devices/custom-fields deviceField',
    'end-users/custom-fields endUserField',
    'organizations/custom-fields organizationField',
    'devices/templates/custom-fields deviceTemplateField',
  ],
] as const;

/** The kind of template that custom fields belong to, by the path of their list. */
const fieldTemplates: Record<string, string> = {
  '/api/v1/devices/custom-fields': 'deviceTemplate',
  '/api/v1/end-users/custom-fields': 'endUserTemplate',
  '/api/v1/organizations/custom-fields': 'organizationTemplate',
};

interface Row {
  title: string;
  endpoint: string;
  method: string;
  path: string;
  /** Which parameter names something that is not the caller's; undefined for a plain list. */
  place: 'path' | 'query' | 'body' | undefined;
  parameter: string;
  kind: string;
  expected: string[];
}

const rows: Row[] = table
  .split('\n')
  .filter((line) => line.trim() !== '')
  .flatMap((line) => {
    const family = families.find(([name]) => line.includes(name));
    if (!family) return [line];
    const [path, kind, ...members] = family;
    return members.map((member) => {
      const [of = '', one = ''] = member.split(' ');
      return line.replaceAll(path, of).replaceAll(kind, one);
    });
  })
  .map((line) => {
    const [endpoint = '', what = '', ...expected] = line.split('|').map((cell) => cell.trim());
    const [method = '', path = ''] = endpoint.split(' ');
    const title = `${endpoint}, ${what}`;
    const [, place, parameter = '', kind = ''] = /^(path|query|body) (\S+): (\S+)$/.exec(what) ?? [];
    // A back-end of another account is a stranger; an application for end-users may call nothing of all this.
    const forbidden = expected[0]?.endsWith('Error') ? '403/ForbiddenError' : '403/21';
    if (path.includes('/mfa/')) expected.push(forbidden, forbidden);
    else expected.push(expected[0] ?? '', forbidden);
    expected.push(ofStations[title] ?? forbidden);
    return { title, endpoint, method, path, place: place as Row['place'], parameter, kind, expected };
  });

/** Something that has an id: an entity with its version, or a text that names one. */
interface Thing {
  id: string;
  version?: string;
}

interface Caller {
  token: string;
  /** What it may use, by kind, to fill in the rest of a request. */
  own: Record<string, Thing>;
  /** What it must not reach, by kind; the first of a kind is live and full. */
  theirs: Record<string, Thing[]>;
  /** What it may say when it makes an organization. */
  organizationBody: object;
  /** What a station says of the devices that it looks for. */
  deviceQuery?: Record<string, string>;
  /** Texts that are in what it must not reach, and in nothing else. */
  secrets: string[];
}

let service: Service;
/** A certificate that is registered nowhere. */
let spare: string;
let callers: Record<(typeof who)[number], Caller>;
/** A command of the device that the others must not reach. */
let command: string | undefined;
let deviceStays: () => boolean;
let stationToken: string;
/** What was in registry.db when that was last looked at. */
let latest: Record<string, unknown[]>;

t.before(async () => {
  service = await startService(t);
  spare = (await makeAuthority()).cert;
  const first = await fill(service.accountId, service.admin);
  const second = await strangerAccount();
  const stranger = await fill(second.accountId, second.token);

  // above ── home ── below, where the outsider belongs; everything else of the account is out of its reach.
  const templateOf = (one: string) => ({ [`${one}TemplateId`]: first.theirs[`${one}Template`]?.[0]?.id });
  const canary = (parentId?: string) => ({ name: 'canary', parentId, ...templateOf('organization') });
  const above = await service.organization(canary());
  const home = await service.organization({ parentId: above.id });
  const below = await service.organization({ parentId: home.id });
  const outsider = await service.endUser(home.id);
  const farewell = await service.organization();
  const newcomer = await service.endUser(farewell.id);

  const sibling = await service.organization(canary(above.id));
  const organizations = [
    sibling,
    await service.organization(canary(sibling.id)),
    await trashed('/organizations', 'organization', canary()),
    await trashed('/organizations', 'organization', canary(sibling.id)),
    above,
  ];
  const placedFleet = { name: 'canary of sibling', filter: 'connected eq true', organizationId: sibling.id };
  first.theirs.fleet?.push(await service.create('/fleets', 'fleet', placedFleet));
  const canaryDevice = (organizationId: string | null) => ({
    serialNumber: 'canary',
    organizationId,
    ...templateOf('device'),
  });
  const watched = await service.device(canaryDevice(sibling.id));
  deviceStays = await publishCanary(watched.device.id, watched.secret);
  const certificate = { entityType: 'device', certificate: await certificateFor('canary') };
  const registered = { entityId: watched.device.id, ...certificate };
  await service.create('/access/mqtt-certificates', 'mqttCertificate', registered);
  const { device } = await service.ok('GET', `/api/v1/devices/${watched.device.id}`);
  const verify = { body: { deviceId: device.id, timeoutSeconds: 0 } };
  await service.ok('POST', '/api/v1/provisioning/verify', verify);
  first.theirs.firmwareRollout = [await rolledOut(first.theirs.firmwarePackage?.at(-1)?.id, device.id)];
  const sent = await service.ok('POST', `/api/v1/devices/${device.id}/commands`, { body: { name: 'canary' } });
  command = sent.command.id;
  await service.ok('POST', `/api/v1/devices/${device.id}/support`, { body: { message: 'canary' } });
  await service.ok('POST', '/api/v1/association/give-away', { body: { deviceId: device.id } });
  const free = await service.create('/devices', 'device', canaryDevice(null));
  const devices = [
    device,
    await service.create('/devices', 'device', canaryDevice(above.id)),
    free,
    await trashed('/devices', 'device', canaryDevice(sibling.id)),
  ];
  const invite = (organizationId: string) => ({
    organizationId,
    createIdmUser: true,
    idmUserEmail: `${service.unique('canary').replace(' ', '')}@example.com`,
    name: 'canary',
    ...templateOf('endUser'),
  });
  const endUsers = [
    await service.create('/end-users', 'endUser', invite(sibling.id)),
    await service.create('/end-users', 'endUser', invite(above.id)),
    await trashed('/end-users', 'endUser', invite(sibling.id)),
  ] as Made<'endUser'>[];
  const topic = (accountId: string, deviceId: string) =>
    service.topic(deviceId, 'canary').replace(service.accountId, accountId);
  const theirs = {
    ...first.theirs,
    organization: organizations,
    device: devices,
    endUser: endUsers,
    identity: [...endUsers.map(({ userId }) => ({ id: userId })), ...(first.theirs.admin ?? [])],
    code: [{ id: await codeOf(device.id) }],
    topic: [topic(service.accountId, device.id), topic(second.accountId, device.id)].flatMap((id) => [
      { id },
      { id: `${id}/latest` },
      { id: encodeURIComponent(id) },
    ]),
  };

  const inAccount = (organizationId: string) => ({ serialNumber: 'own', organizationId });
  const freeCode = { id: await codeOf(free.id) };
  const belowDevice = await service.create('/devices', 'device', inAccount(below.id));
  const farewellDevice = await service.create('/devices', 'device', inAccount(farewell.id));
  // What is in its reach names the organization above it and the admin who has made it.
  const visible = [above.id, first.theirs.admin?.[0]?.id];
  const outsiderSecrets = ['canary', ...idsOf(only(theirs, ...placed)).filter((id) => !visible.includes(id))];
  const outside = { ...theirs, ...only(stranger.theirs, 'account', ...templateKinds) };
  const people = {
    stranger: {
      token: second.token,
      own: { ...stranger.own, code: { id: await codeOf(stranger.own.device?.id ?? '', second.token) } },
      theirs,
      organizationBody: {},
      // The account of the others is no secret: the caller has named it.
      secrets: ['canary', ...idsOf(theirs).filter((id) => id !== service.accountId)],
    },
    outsider: {
      token: outsider.token,
      own: { ...first.own, organization: below, device: belowDevice, endUser: outsider.endUser, code: freeCode },
      theirs: outside,
      organizationBody: { parentId: below.id },
      secrets: outsiderSecrets,
    },
    newcomer: {
      token: newcomer.token,
      own: { ...first.own, organization: farewell, device: farewellDevice, endUser: newcomer.endUser, code: freeCode },
      theirs: outside,
      organizationBody: { endUserTemplateId: first.own.endUserTemplate?.id },
      secrets: outsiderSecrets,
    },
  };
  const programs = [
    await programToken('backEnd', second.accountId, second.token),
    await programToken('endUserApp', service.accountId, service.admin),
  ] as const;
  callers = {
    ...people,
    strangerProgram: { ...people.stranger, token: programs[0] },
    program: { ...people.newcomer, token: programs[1] },
    station: await stationCaller(people.newcomer, first.theirs.deviceTemplate ?? []),
  };
  await service.ok('DELETE', `/api/v1/end-users/${newcomer.endUser.id}`, etag(newcomer.endUser.version));
  latest = snapshot();
});

/** The token of a new application of an account. */
async function programToken(kind: string, accountId: string, token: string, more: object = {}): Promise<string> {
  const body = { accountId, name: 'program', kind, ...more };
  const { id: appId, appToken } = await service.create('/applications', 'application', body, token);
  const login = { body: { appId, appToken, accountId }, token: null };
  stationToken = appToken;
  return (await service.ok('POST', '/api/v1/auth/login-application', login)).jwt;
}

/** A station that must not reach what others make where it puts its devices, nor its own ones once they stand elsewhere. */
async function stationCaller(like: Caller, deviceTemplates: Thing[]): Promise<Caller> {
  const { accountId, admin } = service;
  const organization = await service.organization();
  const place = { deviceTemplateId: like.own.deviceTemplate?.id, organizationId: organization.id };
  const limits = { ...place, maxDevices: 10, expiresAt: '2999-01-01' };
  const another = await programToken('station', accountId, admin, limits);
  const token = await programToken('station', accountId, admin, limits);
  const canary = { serialNumber: 'canary' };
  const byAdmin = await service.create('/devices', 'device', { ...canary, ...place });
  // A station makes a serial number of its template once: what has the same one got it later.
  const renamed = async (token: string, changes: object) => {
    const { id, version } = await service.create('/devices', 'device', { serialNumber: service.unique('S') }, token);
    return (await service.ok('PUT', `/api/v1/devices/${id}`, { body: { ...canary, ...changes }, ...etag(version) }))
      .device;
  };
  const byAnother = await renamed(another, {});
  const claimed = await renamed(token, { organizationId: null });
  const device = await service.create('/devices', 'device', { serialNumber: 'own unit' }, token);
  const { device: devices = [], deviceTemplate = [] } = like.theirs;
  return {
    token,
    own: { ...like.own, device, organization },
    theirs: {
      ...like.theirs,
      device: [...devices, byAdmin, byAnother, claimed],
      deviceTemplate: [...deviceTemplate, ...deviceTemplates],
    },
    organizationBody: {},
    deviceQuery: canary,
    secrets: [...like.secrets.filter((secret) => secret !== 'canary'), byAdmin.id, byAnother.id, claimed.id],
  };
}

const placed = ['device', 'fleet', 'endUser', 'organization', 'identity', 'code', 'topic'];
const templateKinds = ['deviceTemplate', 'endUserTemplate', 'organizationTemplate'];
const etag = (version: string) => ({ headers: { etag: version } });
const only = <V>(from: Record<string, V>, ...names: string[]): Record<string, V> =>
  Object.fromEntries(Object.entries(from).filter(([name]) => names.includes(name)));

const idsOf = (things: Record<string, Thing[]>): string[] =>
  Object.values(things).flatMap((ones) => ones.map(({ id }) => id));

/** An account next to the first one, and its admin's token. */
async function strangerAccount(): Promise<{ accountId: string; token: string }> {
  const { accountId, admin: token } = await service.account();
  return { accountId, token };
}

/** Creates something of the account and moves it to the trash. */
async function trashed(path: string, wrapper: string, body: object, token = service.admin): Promise<Thing> {
  const made = await service.create(path, wrapper, body, token);
  await service.ok('DELETE', `/api/v1${path}/${made.id}`, { token, ...etag(made.version) });
  return made;
}

/** A job that has made a device. */
async function finishedJob(token: string): Promise<Thing> {
  const body = { rows: [{ serialNumber: 'canary of a job' }] };
  const { job } = (await service.http('POST', '/api/v1/provisioning/jobs', { body, token })).body;
  // The stream ends with the job.
  await service.http('GET', `/api/v1/provisioning/jobs/${job.id}/events`, { token });
  return { id: job.id };
}

/** What only admins see in an account, in a form to use (`own`) and, with a canary in each, in a form to hide (`theirs`). */
async function fill(accountId: string, token: string): Promise<Pick<Caller, 'own' | 'theirs'>> {
  const mine = service.accountId === accountId;
  const mark = mine ? 'canary' : 'plain';
  const list = async <T extends Thing>(path: string) => {
    const body = await service.ok('GET', `/api/v1${path}?accountId=${accountId}`, { token });
    return wrapped<{ results: [T, ...T[]] }>(body).results;
  };
  const create = (path: string, wrapper: string, body: object) =>
    service.create(path, wrapper, { accountId, ...body }, token);
  const own: Record<string, Thing> = { account: { id: accountId } };
  const theirs: Record<string, Thing[]> = { account: [{ id: accountId }] };
  const both = async (kind: string, path: string, wrapper: string, body: object = {}) => {
    const made = await create(path, wrapper, { name: mark, ...body });
    theirs[kind] = [made, await trashed(path, wrapper, { accountId, name: `${mark} trash`, ...body }, token)];
    return made;
  };
  for (const [kind, one] of [
    ['devices', 'device'],
    ['end-users', 'endUser'],
    ['organizations', 'organization'],
  ] as const) {
    own[`${one}Template`] = (await list(`/${kind}/templates`))[0];
    const template = await both(`${one}Template`, `/${kind}/templates`, `${one}Template`);
    const field = { [`${one}TemplateId`]: template.id, fieldType: 'string' };
    await both(`${one}Field`, `/${kind}/custom-fields`, `${one}Field`, field);
    const plain = { ...field, [`${one}TemplateId`]: own[`${one}Template`]?.id, name: 'own' };
    own[`${one}Field`] = await create(`/${kind}/custom-fields`, `${one}Field`, plain);
  }
  const [field, ofTemplates] = ['deviceTemplateField', '/devices/templates/custom-fields'];
  own.deviceTemplateField = await both(field, ofTemplates, field, { fieldType: 'string' });
  const entityId = theirs.deviceTemplate?.[0]?.id;
  const channel = { entityId, entityType: 'deviceTemplate', persistenceType: 'timeSeries' };
  await both('channelTemplate', '/channels/templates', 'channelTemplate', channel);
  const kind = mine ? { kind: 'backEnd' } : { kind: 'endUserApp' };
  await both('application', '/applications', 'application', kind);
  own.application = await create('/applications', 'application', { name: 'own', kind: 'backEnd' });
  await both('fleet', '/fleets', 'fleet', { filter: 'connected eq true', description: mark });
  await both('role', '/roles', 'role', { scope: 'account', rights: { device: ['read'] }, description: mark });
  await both('identityProvider', '/identity-providers', 'identityProvider', client);
  const bridge = await both('bridge', '/bridges', 'bridge', webhook);
  if (mine) await leaveDeadLetter(service, bridge.id, 'canary');
  const device = await create('/devices', 'device', { serialNumber: mark });
  for (const [kind, path, more] of [
    ['mqttCertificate', '/access/mqtt-certificates', { entityId: device.id, entityType: 'device' }],
    ['certificateAuthority', '/access/certificate-authorities', {}],
  ] as const) {
    const body = async (name: string) => ({ accountId, name, ...more, certificate: await certificateFor(mark) });
    const gone = await trashed(path, kind, await body(`${mark} trash`), token);
    theirs[kind] = [await create(path, kind, await body(mark)), gone];
  }
  // As if each of these CAs had issued one of the certificates.
  for (const [at, { id }] of (theirs.mqttCertificate ?? []).entries()) {
    const authority = theirs.certificateAuthority?.[at]?.id ?? '';
    await changeStored(service, 'UPDATE "certificates" SET "certificateAuthorityId" = ? WHERE "id" = ?', [
      authority,
      id,
    ]);
  }
  const enrollment = { deviceTemplateId: entityId, proof: 'derivedKey' };
  const group = await both('enrollmentGroup', '/enrollment-groups', 'enrollmentGroup', enrollment);
  await service.http('POST', '/api/v1/enroll', { token: null, headers: basic(`${group.id}/${mark}`, 'x'), body: {} });
  const key = derived((group as Thing & { groupKey?: string }).groupKey ?? '', mark);
  await service.http('POST', '/api/v1/enroll', { token: null, headers: basic(`${group.id}/${mark}`, key), body: {} });
  // The refusal is written a little later; a snapshot must not see it change.
  await service.ok('GET', `/api/v1/enrollment-groups/${group.id}/refusals`, { token });
  const firmware = { deviceTemplateId: entityId, firmwareVersion: '1' };
  const filled = await both('firmwarePackage', '/firmware/packages', 'firmwarePackage', firmware);
  if (mine) {
    const other = await create('/firmware/packages', 'firmwarePackage', { name: mark, ...firmware });
    theirs.firmwarePackage?.push(await published(other, token));
    await upload(filled.id, token);
  }
  const issuer = { name: 'own', issuing: true };
  own.certificateAuthority = await create('/access/certificate-authorities', 'certificateAuthority', issuer);
  const ofGroup = { name: 'own', deviceTemplateId: own.deviceTemplate?.id, proof: 'derivedKey' };
  own.enrollmentGroup = await create('/enrollment-groups', 'enrollmentGroup', ofGroup);
  if (mine) theirs.job = [await finishedJob(token)];
  const [admin] = await list<Thing & { userId: string }>('/account-users');
  const second = { createIdmUser: true, idmUserEmail: `${mark}@example.com` };
  const ended = await trashed('/account-users', 'accountUser', { accountId, ...second }, token);
  theirs.accountUser = [admin, ended];
  own.accountUser = admin;
  theirs.admin = [{ id: admin.userId }];
  if (mine) return { own, theirs };
  own.organization = await create('/organizations', 'organization', { name: 'own' });
  own.device = await create('/devices', 'device', { serialNumber: 'own', organizationId: own.organization?.id });
  const person = { createIdmUser: true, idmUserEmail: 'own@example.com', organizationId: own.organization?.id };
  own.endUser = await create('/end-users', 'endUser', person);
  return { own, theirs };
}

/** The package with a file, published. */
async function published({ id }: Thing, token: string): Promise<Thing> {
  const { firmwarePackage } = await upload(id, token);
  const publish = { token, ...etag(firmwarePackage.version) };
  return (await service.ok('POST', `/api/v1/firmware/packages/${id}/publish`, publish)).firmwarePackage;
}

/** A rollout to a device, to which nothing has been offered yet. */
async function rolledOut(firmwarePackageId: string | undefined, deviceId: string): Promise<Thing> {
  const target = { deviceIds: [deviceId] };
  const { id } = await service.create('/firmware/rollouts', 'firmwareRollout', { firmwarePackageId, target });
  await rolloutUntil(service, id, ({ counts }) => counts.pending === 1);
  return { id };
}

/** Puts a file into a package. */
function upload(packageId: string, token: string) {
  const headers = { 'content-type': 'application/octet-stream' };
  return service.ok('PUT', `/api/v1/firmware/packages/${packageId}/files/canary`, { body: 'canary', headers, token });
}

async function codeOf(deviceId: string, token = service.admin): Promise<string> {
  const request = { body: { deviceId }, token };
  return (await service.ok('POST', '/api/v1/association/create-association-code', request)).associationCode;
}

/** Lets a device say something, and stay; whether its connection has survived. */
async function publishCanary(deviceId: string, secret: string): Promise<() => boolean> {
  const watch = await service.connect({ jwt: service.admin });
  const updates = service.topic('+', '_updates/fields');
  await watch.subscribeAsync(updates);
  const seen = nextMessage(watch, (_, payload) => JSON.parse(payload.toString()).state.connected === true);
  const client = await service.connect({ deviceId, secret });
  await client.publishAsync(service.topic(deviceId, 'canary'), ',canary,1,canary', { qos: 1 });
  // Refused, and written before the first snapshot.
  await client.publishAsync(service.topic(deviceId, 'no canary'), 'x', { qos: 1 });
  await service.ok('GET', `/api/v1/devices/${deviceId}/refusals`);
  // Presence is written a little later than it is so; a snapshot must not see it change.
  await seen;
  return () => client.connected;
}

const certificateFor = async (name: string) => (await makeAuthority({ subject: `CN=${name}` })).cert;
/** Of an identity provider; its clientId is an id at the provider. */
const client = { issuer: 'https://id.example.com', clientId: 'client' };
const webhook = { kind: 'webhook', url: 'https://hooks.example.com/in' };
const aStation = { kind: 'station', maxDevices: 1, expiresAt: '2999-01-01' };
const backEnd = { kind: 'backEnd', deviceTemplateId: undefined, maxDevices: undefined, expiresAt: undefined };

/** What a request of the endpoint says besides the id in question. */
function bodyOf(
  { method, path, parameter }: Row,
  { own, organizationBody }: Caller,
): Record<string, unknown> | undefined {
  if (method !== 'POST' && method !== 'PUT') return undefined;
  const accountId = own.account?.id;
  const organizationId = own.organization?.id;
  const newUser = { createIdmUser: true, idmUserEmail: 'late@example.com' };
  const template = fieldTemplates[path.replace('/{id}', '')];
  const field = {
    accountId,
    name: 'changed',
    fieldType: 'string',
    ...(template && { [`${template}Id`]: own[template]?.id }),
  };
  if (path.startsWith('/api/v1/trash/')) return undefined;
  if (path.includes('/custom-fields')) return field;
  const bodies: Record<string, Record<string, unknown>> = {
    '/api/v1/devices': { accountId, serialNumber: 'changed' },
    '/api/v1/devices/{id}': { serialNumber: 'changed' },
    '/api/v1/fleets': { accountId, organizationId, name: 'changed', filter: 'connected eq true' },
    '/api/v1/fleets/preview': { accountId, filter: 'connected eq true' },
    '/api/v1/end-users': { accountId, organizationId, ...newUser },
    '/api/v1/end-users/{id}': { organizationId, city: 'changed' },
    '/api/v1/organizations': { accountId, name: 'changed', ...organizationBody },
    '/api/v1/channels/templates': {
      accountId,
      entityId: own.deviceTemplate?.id,
      entityType: 'deviceTemplate',
      name: 'changed',
    },
    '/api/v1/channels/templates/{id}': { streamBridgeDelivery: 2 },
    '/api/v1/provisioning/jobs': { rows: [{ serialNumber: 'changed' }] },
    '/api/v1/devices/jobs': {
      ...{ action: 'move', organizationId },
      ...(parameter !== 'fleetId' && { ids: [own.device?.id] }),
    },
    '/api/v1/commands/bulk': {
      ...{ accountId, command: { name: 'changed' } },
      ...(parameter !== 'fleetId' && { filter: { organizationId } }),
    },
    '/api/v1/account-users': { accountId, ...newUser },
    '/api/v1/roles': { accountId, name: 'changed', scope: 'account', rights: {} },
    '/api/v1/applications': {
      accountId,
      name: 'changed',
      kind: 'endUserApp',
      ...(parameter !== 'accountId' && { ...aStation, deviceTemplateId: own.deviceTemplate?.id }),
      ...(parameter === 'roleId' && backEnd),
    },
    '/api/v1/firmware/rollouts': { accountId, firmwarePackageId: randomUUID(), target: { deviceIds: ['x'] } },
    '/api/v1/firmware/rollouts/preview': { accountId, firmwarePackageId: randomUUID(), target: { deviceIds: ['x'] } },
    '/api/v1/devices/{id}/firmware': { packageId: randomUUID() },
    '/api/v1/firmware/packages': {
      accountId,
      deviceTemplateId: own.deviceTemplate?.id,
      name: 'x',
      firmwareVersion: '1',
    },
    '/api/v1/enrollment-groups': {
      accountId,
      deviceTemplateId: own.deviceTemplate?.id,
      name: 'x',
      proof: parameter === 'proofAuthorityId' ? 'certificate' : 'claimSecret',
    },
    '/api/v1/devices/{id}/commands': { name: 'changed' },
    '/api/v1/identity-providers': { accountId, name: 'changed', ...client },
    '/api/v1/identity-providers/{id}/scim-token': { expiresAt: new Date(Date.now() + 86_400_000).toISOString() },
    '/api/v1/bridges': { accountId, name: 'changed', ...webhook },
    '/api/v1/bridges/{id}/replay': { from: '2026-01-01', to: '2026-01-02' },
    '/api/v1/access/mqtt-credentials': { accountId, entityId: own.device?.id, entityType: 'device' },
    '/api/v1/access/mqtt-certificates': {
      accountId,
      entityId: own.device?.id,
      entityType: 'device',
      certificate: spare,
    },
    '/api/v1/access/certificate-authorities': { accountId, name: 'changed', certificate: spare },
    '/api/v1/access/certificate-authorities/{id}/proof': { certificate: spare },
    '/api/v1/access/certificate-authorities/{id}/issue': { deviceId: own.device?.id, csr: 'spare' },
    '/api/v1/access/certificate-authorities/{id}/certificate': { certificate: spare },
    '/api/v1/devices/{id}/replace': { serialNumber: 'changed' },
    '/api/v1/provisioning/verify': { timeoutSeconds: 0 },
    '/api/v1/users/{userId}/mfa/sms': { phoneNumber: '+15550100' },
    '/api/v1/users/{userId}/mfa/totp/confirm': { code: '000000' },
    '/api/v1/users/{userId}/mfa/sms/confirm': { code: '000000' },
    '/api/v1/profile/change-password': { oldPassword: 'a guess', newPassword: 'changed by others' },
    '/api/v1/profile/update-email-address': { newEmailAddress: 'changed@example.com' },
    '/api/v1/association/create-association-code': {},
    '/api/v1/association/give-away': {},
    '/api/v1/devices/{id}/support': { message: 'changed' },
    '/api/v1/association/start-association-with-code': { associationCode: own.code?.id, organizationId },
  };
  return bodies[path] ?? { accountId, name: 'changed' };
}

const takesEtag = ({ method, path }: Row) =>
  method === 'PUT' || method === 'DELETE' || /\/(recover|regenerate|replace|publish|retire)$/.test(path);

interface Sent {
  method: string;
  path: string;
  body: object | undefined;
  headers: Record<string, string>;
}

/** The request of a row that names `thing`; `version` is what is in the etag header. */
function requestOf(row: Row, caller: Caller, thing: Thing, version = thing.version): Sent {
  const { method, place, parameter } = row;
  const body = bodyOf(row, caller);
  if (place === 'body') {
    const said = present(body);
    if (parameter === 'endUserId') delete said.organizationId;
    if (parameter === 'entityId') said.entityType = row.kind;
    said[parameter] = thing.id;
  }
  const query = new URLSearchParams();
  if (method === 'GET' && !row.path.includes('{')) {
    query.set('accountId', caller.own.account?.id ?? '');
    query.set('pageSize', '1000');
    // The list of custom fields is that of one template.
    const template = fieldTemplates[row.path];
    if (template) query.set(`${template}Id`, caller.own[template]?.id ?? '');
    if (row.path === '/api/v1/search') query.set('q', 'canary');
    if (row.path === '/api/v1/devices')
      for (const [name, value] of Object.entries(caller.deviceQuery ?? {})) query.set(name, value);
    if (place === 'query') query.set(parameter, thing.id);
  } else if (place === 'query') query.set(parameter, thing.id);
  const self = rows.find(({ endpoint, place }) => endpoint === row.endpoint && place === 'path');
  const own = place === 'body' && self ? caller.own[self.kind] : undefined;
  const named = (_: string, name: string) => {
    if (name === 'id' || (place === 'path' && name === parameter)) return own?.id ?? thing.id;
    return name === 'commandId' ? (command ?? 'canary') : 'canary';
  };
  const path = row.path.replace(/\{(\w+)\}/g, named) + (query.size > 0 ? `?${query}` : '');
  const expected = own ? own.version : version;
  return { method, path, body, headers: takesEtag(row) && expected !== undefined ? { etag: expected } : {} };
}

const send = (caller: Pick<Caller, 'token'> | undefined, { method, path, body, headers }: Sent) =>
  service.http(method, path, { token: caller?.token ?? null, headers, ...(body !== undefined && { body }) });

/** What the caller asks for, the live one first. */
function asked({ kind, place }: Row, caller: Caller): [Thing, ...Thing[]] {
  const [first, ...others] = place === undefined ? [{ id: '' }] : (caller.theirs[kind] ?? []);
  if (!first) throw new Error(`nobody has made a ${kind}`);
  return [first, ...others];
}

/** An id of the same form that nothing has. */
function madeUp({ kind }: Row): string {
  return kind === 'topic' ? service.topic(randomUUID(), 'canary') : randomUUID();
}

/** What callers change by calling: sessions, and the record of what they tried, whose rows SQLite numbers. */
const ofCalling = ['sessions', 'auditRecords', 'sqlite_sequence'];

/** Everything in registry.db but that. */
function snapshot(): Record<string, unknown[]> {
  const tables = storedRows<{ name: string }>(service, `SELECT "name" FROM "sqlite_master" WHERE "type" = 'table'`)
    .map(({ name }) => name)
    .filter((name) => !ofCalling.includes(name));
  const all: Record<string, unknown[]> = Object.fromEntries(
    tables.map((name) => [name, storedRows(service, `SELECT * FROM "${name}"`)]),
  );
  // The activity of an account is written every five minutes, and its bytes count. How many audit records there are counts too.
  const kept = all.kept?.filter((row) => !['auditRecords', 'entityBytes'].includes((row as { what: string }).what));
  return { ...all, activity: [], ...(kept && { kept }) };
}

/** That nothing is other than it was when this was last asked, at first when the callers had been made. */
async function unchanged(t: Test): Promise<void> {
  const now = snapshot();
  // It says what is different, and takes its time for that.
  if (isDeepStrictEqual(now, latest)) t.pass('nothing has changed');
  else t.strictSame(now, latest, 'nothing has changed');
  latest = now;
}

/** What is the same for an id out of reach and for one that does not exist. */
function seen({ status, headers, body }: Answer) {
  const { requestId: _, ...rest } = body;
  return { ...rest, status, etag: headers.get('etag'), ignored: headers.get('platform-ignored-properties') };
}

/** A refusal as the table writes it. */
function outcome({ status, body }: Pick<Answer, 'status' | 'body'>): string {
  return `${status}/${body.attributes?.errorCode ?? body.error?.code}`;
}

/** What of an answer is not as the table says, and what of others it holds. */
function faultsIn(expected: string, row: Row, answer: Pick<Answer, 'status' | 'body'>, caller: Caller): string[] {
  const faults: string[] = [];
  const text = JSON.stringify(answer.body);
  const told = caller.secrets.find((secret) => text.includes(secret));
  if (told !== undefined) faults.push(`tells ${told}`);
  const isRefusal = expected.includes('/');
  const is = isRefusal ? outcome(answer) : `${answer.status}`;
  if (is !== (isRefusal ? expected : '200')) return [...faults, `${is}, not ${expected}`];
  const page = wrapped<{ results: unknown[]; meta: { count: number }; details: { path: string }[] }>(answer.body);
  if (expected === '400/102' && page.details[0]?.path !== row.parameter) faults.push(`names ${page.details[0]?.path}`);
  if (isRefusal) return faults;
  if (expected === 'none' && page.results.length > 0) faults.push(`lists ${page.results.length}`);
  const count = expected === 'none' ? 0 : page.results.length;
  if (page.meta.count !== count) faults.push(`counts ${page.meta.count}, not ${count}`);
  return faults;
}

t.test('the table names every endpoint of the OpenAPI document and every id that it takes', async (t) => {
  const named = new Set(
    rows.flatMap(({ endpoint, place, parameter }) => [endpoint, `${endpoint}, ${place} ${parameter}`]),
  );
  const document = documentOf(service);
  const missing: string[] = [];
  const demand = (name: string) => !named.has(name) && missing.push(name);
  const resolve = <T extends { $ref?: string }>(part: T | undefined) =>
    part?.$ref ? partOf<T>(document, part.$ref) : part;
  for (const [path, operations] of Object.entries(document.paths))
    for (const [method, { parameters = [], requestBody }] of Object.entries(operations)) {
      const endpoint = `${method.toUpperCase()} ${path}`;
      if (endpoint in withoutIds) continue;
      demand(endpoint);
      const whole = resolve(requestBody?.content['application/json']?.schema);
      // One thing, or a list of such.
      const schema = whole?.anyOf ? resolve(whole.anyOf[0]) : whole;
      if (schema && !schema.properties && !schema.additionalProperties) missing.push(`the body of ${endpoint}`);
      const body = Object.keys(schema?.properties ?? {}).map((name) => ({ in: 'body', name }));
      for (const { in: place, name } of [...parameters.flatMap((one) => resolve(one) ?? []), ...body])
        if (
          !['clientId', 'name', 'commandId', 'supportId'].includes(name) &&
          (place === 'path' || /Id$|^associationCode$/.test(name))
        )
          demand(`${endpoint}, ${place} ${name}`);
    }
  t.strictSame(missing, []);
  t.strictSame(
    rows.filter(({ expected }) => expected.length !== who.length).map(({ title }) => title),
    [],
    'an answer for each caller',
  );
});

for (const [at, row] of rows.entries())
  t.test(row.title, async (t) => {
    const nobody = await send(undefined, requestOf(row, callers.stranger, asked(row, callers.stranger)[0]));
    t.match(outcome(nobody), /^401\/(30|TokenMissingError)$/, 'without a token: 401/30');
    const wrong: string[] = [];
    for (const [n, name] of who.entries()) {
      const caller = callers[name];
      const [thing, ...others] = asked(row, caller);
      const first = await send(caller, requestOf(row, caller, thing));
      wrong.push(...faultsIn(row.expected[n] ?? '', row, first, caller).map((fault) => `${name}: ${fault}`));
      // A list by another's id is empty in any case; a held device is told from an unknown code.
      if (row.place === undefined || row.place === 'query' || row.kind === 'code') continue;
      // A caller that is refused for what it is has named a live thing with its etag above; here it names a deleted one.
      const isRefused = row.expected[n] === '403/21';
      const etags = takesEtag(row) && row.place === 'path' && !isRefused ? ['1', 'right', undefined] : ['1'];
      for (const [turn, version] of etags.entries()) {
        const nothing = seen(await send(caller, requestOf(row, caller, { id: madeUp(row) }, version && '1')));
        // The first with every etag, each other one with one of them, which is another for each caller.
        const inTurn = others.filter((_, at) => (at + n) % etags.length === turn);
        for (const { id, version: latest } of isRefused ? [others.at(-1) ?? thing] : [thing, ...inTurn]) {
          const etag = version === 'right' ? latest : version;
          const isFirst = id === thing.id && (version === 'right' || !takesEtag(row));
          const answer = seen(isFirst ? first : await send(caller, requestOf(row, caller, { id }, etag)));
          if (!isDeepStrictEqual(answer, nothing))
            wrong.push(`${name}: ${id}, etag ${etag}: ${JSON.stringify(answer)}, not ${JSON.stringify(nothing)}`);
        }
      }
    }
    t.strictSame(wrong, [], 'as the table says; live or deleted, whatever the etag, it looks like what does not exist');
    if (at % 10 === 9 || at === rows.length - 1) await unchanged(t);
  });

t.test('what the others are refused is there, for its admin', async (t) => {
  const admin = { ...callers.stranger, token: service.admin, own: callers.outsider.own };
  // Streams do not end; test/messages/stream.test.ts and test/firmware/rollouts.test.ts read them.
  const isRead = ({ method, place, path }: (typeof rows)[number]) =>
    method === 'GET' && place !== undefined && !/\/(stream|rollouts\/\{id\}\/events)$/.test(path);
  for (const row of rows.filter(isRead)) {
    const answers = await Promise.all(asked(row, admin).map((thing) => send(admin, requestOf(row, admin, thing))));
    const full = answers.some(
      ({ status, text }) => status === 200 && admin.secrets.some((secret) => text.includes(secret)),
    );
    t.ok(full || row.parameter === 'accountId', row.title);
  }
});

t.test('a station may do its work, and of every other endpoint nothing: 403, whatever it names', async (t) => {
  const caller = callers.station;
  const allowed = new Set(Object.keys(ofStations).map((title) => title.split(',')[0] ?? ''));
  const document = documentOf(service);
  const wrong: string[] = [];
  for (const [path, operations] of Object.entries(document.paths))
    for (const [method, { security, 'x-callers': named }] of Object.entries(operations)) {
      const endpoint = `${method.toUpperCase()} ${path}`;
      const isOpen = security.length === 0;
      const isItsOwn = allowed.has(endpoint) || ofSessions.includes(endpoint);
      if (named.includes('station') !== isItsOwn) wrong.push(`${endpoint}: the document says ${!isItsOwn}`);
      if (isOpen || isItsOwn) continue;
      const row = rows.find((one) => one.endpoint === endpoint);
      const own = caller.own[row?.kind ?? ''] ?? { id: randomUUID(), version: '1' };
      const url = path.replace(/\{.*\}/, randomUUID()) + (method === 'get' ? `?accountId=${service.accountId}` : '');
      const body = plainBodies[endpoint] && { accountId: service.accountId, ...plainBodies[endpoint] };
      const plain = { method: method.toUpperCase(), path: url, body, headers: {} };
      const sent = row ? requestOf(row, caller, own) : plain;
      const takesAppToken = security.some((one: object) => 'appToken' in one);
      const answer = takesAppToken
        ? await service.http(sent.method, sent.path, {
            token: null,
            headers: { accesstoken: stationToken },
            ...(sent.body && { body: sent.body }),
          })
        : await send(caller, sent);
      if (!/^403\/(21|ForbiddenError)$/.test(outcome(answer))) wrong.push(`${endpoint}: ${outcome(answer)}`);
    }
  t.strictSame(wrong, []);
  await unchanged(t);
});

t.test('a batch gives nobody more than the requests in it', async (t) => {
  for (const [n, name] of who.entries()) {
    const caller = callers[name];
    const wrong: string[] = [];
    for (let from = 0; from < rows.length; from += 50) {
      const part = rows.slice(from, from + 50);
      const requests = part.map((row) => {
        const { body, ...sent } = requestOf(row, caller, asked(row, caller)[0]);
        return { ...sent, ...(body !== undefined && { payload: body }) };
      });
      const batch = { body: { requests } };
      t.match(await service.http('POST', '/api/v1/batch', { ...batch, token: null }), { status: 401 });
      const answers = (await service.ok('POST', '/api/v1/batch?status=true', {
        ...batch,
        token: caller.token,
      })) as Pick<Answer, 'status' | 'body'>[];
      for (const [place, row] of part.entries())
        wrong.push(
          ...faultsIn(row.expected[n] ?? '', row, present(answers[place]), caller).map(
            (fault) => `${row.title}: ${fault}`,
          ),
        );
    }
    t.strictSame(wrong, [], name);
  }
  await unchanged(t);
});

t.test('the device that all of this was about is still connected', async (t) => {
  t.ok(deviceStays());
});

t.test('names and email addresses of one account are free in another', async (t) => {
  const { token, own } = callers.stranger;
  const accountId = own.account?.id;
  const organizationId = own.organization?.id;
  for (const kind of ['devices', 'end-users', 'organizations']) {
    const answer = await service.http('POST', `/api/v1/${kind}/templates`, {
      token,
      body: { accountId, name: 'canary' },
    });
    t.equal(answer.status, 200, `${kind}: a template`);
  }
  for (const { email } of storedRows<{ email: string }>(service, 'SELECT "email" FROM "identities"')) {
    if (!email.startsWith('canary')) continue;
    const body = { accountId, organizationId, createIdmUser: true, idmUserEmail: email };
    t.equal((await service.http('POST', '/api/v1/end-users', { token, body })).status, 200, email);
  }
});

t.end();
