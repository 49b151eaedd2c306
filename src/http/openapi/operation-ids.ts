/** The names of operations, as people say them: generated clients make functions of them. */

/** Operations that are more than reading, listing, creating, changing, deleting or recovering a resource. */
const named: Record<string, string> = {
  'GET /.well-known/jwks.json': 'getSigningKeys',
  'POST /auth/login-user': 'loginUser',
  'POST /auth/login-application': 'loginApplication',
  'POST /auth/mfa-trigger-auth': 'sendMfaCode',
  'POST /auth/mfa-login-user': 'loginWithMfa',
  'POST /auth/validate-jwt': 'validateJwt',
  'GET /auth/validate-jwt': 'validateJwtInQuery',
  'GET /oauth2/authorize': 'authorizeAtProvider',
  'GET /oauth2/callback': 'finishAtProvider',
  'POST /users/{userId}/change-password-with-token': 'changePasswordWithToken',
  'POST /auth/confirm-email': 'confirmEmail',
  'GET /users/{userId}/password-reset-token': 'requestPasswordReset',
  'GET /users/by-email/{email}/user-id': 'findUserByEmail',
  'POST /auth/create-user': 'createUser',
  'POST /sessions/logout': 'logout',
  'POST /sessions/renew-session': 'renewSession',
  'GET /profile/{userId}': 'getProfile',
  'POST /profile/update': 'updateProfile',
  'POST /profile/change-password': 'changePassword',
  'POST /profile/update-email-address': 'updateEmailAddress',
  'POST /users/batch': 'getUsers',
  'DELETE /internal/users/{userId}': 'deleteUser',
  'GET /users/{userId}/security': 'getUserSecurity',
  'POST /users/{userId}/end-sessions': 'endUserSessions',
  'POST /users/{userId}/mfa/totp': 'enrolTotp',
  'POST /users/{userId}/mfa/totp/confirm': 'confirmTotp',
  'DELETE /users/{userId}/mfa/totp': 'removeTotp',
  'POST /users/{userId}/mfa/sms': 'enrolSms',
  'POST /users/{userId}/mfa/sms/code': 'sendSmsRemovalCode',
  'POST /users/{userId}/mfa/sms/confirm': 'confirmSms',
  'DELETE /users/{userId}/mfa/sms': 'removeSms',
  'POST /access/certificate-authorities/{id}/proof': 'proveCertificateAuthority',
  'POST /association/create-association-code': 'createAssociationCode',
  'POST /association/start-association-with-code': 'claimDevice',
  'GET /provisioning/addresses': 'getProvisioningAddresses',
  'POST /batch': 'runBatch',
  'GET /devices/{id}/logs': 'listDeviceLogs',
  'POST /devices/{id}/logs': 'writeDeviceLogs',
  'POST /logs/search': 'searchLogs',
  'GET /stream': 'streamMessages',
  'GET /retention': 'getRetention',
  'PUT /retention': 'updateRetention',
  'GET /usage': 'getUsage',
  'GET /devices/{id}/refusals': 'listDeviceRefusals',
  'POST /permissions/explain': 'explainPermission',
  'GET /bridges/{id}/dead-letters': 'listDeadLetters',
  'POST /devices/{id}/replace': 'replaceDevice',
  'POST /provisioning/verify': 'verifyDevice',
  'GET /provisioning/verifications': 'listVerifications',
  'GET /audit': 'listAuditRecords',
  'POST /devices/jobs': 'createBulkJob',
  'POST /devices/jobs/{id}/undo': 'undoBulkJob',
  'GET /data/{topic}': 'listPoints',
  'GET /data/{topic}/latest': 'listLatestPoints',
  'POST /data/{topic}': 'writePoints',
  'POST /messaging/publish/{topic}': 'publishMessage',
  'GET /devices/{id}/firmware': 'getDeviceFirmware',
  'POST /devices/{id}/firmware/install': 'installFirmware',
  'GET /devices/{id}/commands': 'listCommands',
  'POST /devices/{id}/commands': 'createCommand',
  'GET /devices/{id}/commands/{commandId}': 'getCommand',
  'DELETE /devices/{id}/commands/{commandId}': 'cancelCommand',
  'GET /firmware/offer': 'getFirmwareOffer',
  'POST /firmware/status': 'reportFirmwareStatus',
  'GET /firmware/files/{sha256}': 'downloadFirmware',
  'GET /profile/me': 'getOwnProfile',
  'GET /auth/login-providers': 'listLoginProviders',
  'POST /auth/forgot-password': 'forgotPassword',
  'GET /devices/{id}/connectivity': 'getDeviceConnectivity',
  'GET /devices/counts': 'countDevices',
  'GET /auth/default-account': 'getDefaultAccount',
};

/** Paths whose last words are not the name of what they hold. */
const resources: Record<string, string> = {
  '/devices/templates/custom-fields': 'deviceTemplateFields',
  '/devices/custom-fields': 'deviceFields',
  '/end-users/custom-fields': 'endUserFields',
  '/organizations/custom-fields': 'organizationFields',
  '/devices/templates': 'deviceTemplates',
  '/end-users/templates': 'endUserTemplates',
  '/organizations/templates': 'organizationTemplates',
  '/channels/templates': 'channelTemplates',
  '/access/mqtt-credentials': 'mqttCredentials',
  '/access/mqtt-certificates': 'mqttCertificates',
  '/access/certificate-authorities': 'certificateAuthorities',
  '/provisioning/jobs': 'provisioningJobs',
  '/firmware/packages': 'firmwarePackages',
  '/firmware/rollouts': 'firmwareRollouts',
};

/** The verbs of each method, for a list and for one of its entities. */
const verbs: Record<string, [onList: string, onOne: string]> = {
  GET: ['list', 'get'],
  POST: ['create', 'create'],
  PUT: ['update', 'update'],
  DELETE: ['delete', 'delete'],
};

/** `GET /api/v1/devices/{id}` is getDevice, `POST /api/v1/trash/devices/{id}/recover` recoverDevice. */
export function operationId(method: string, url: string): string {
  const path = url.replace(/^\/api\/v\d+/, '').replace(/:(\w+)/g, '{$1}');
  const known = named[`${method} ${path}`];
  if (known) return known;
  const isTrash = path.startsWith('/trash/');
  const [resource = '', rest = ''] = path.replace(/^\/trash(?=\/)/, '').split(/(?=\/\{)/, 2);
  const plural = upper(resources[resource] ?? camel(resource));
  const action = path.slice(path.indexOf(resource) + resource.length + rest.length).replace(/^\/\{\w+\}/, '');
  const steps = camel(rest.replace(/^\/\{\w+\}/, '') + action);
  if (isTrash && steps === 'recover') return `recover${singular(plural)}`;
  const [onList = '', onOne = ''] = verbs[method] ?? [];
  const deleted = isTrash ? 'Deleted' : '';
  if (steps === '')
    return rest === '' && method === 'GET' ? `${onList}${deleted}${plural}` : `${onOne}${deleted}${singular(plural)}`;
  // A verb at the end says it all: POST /bridges/{id}/replay is replayBridge.
  if (method === 'POST' && !/[A-Z]/.test(steps)) return `${steps}${singular(plural)}`;
  return `${method === 'POST' ? lower(steps) : onOne}${singular(plural)}${method === 'POST' ? '' : upper(steps)}`;
}

function camel(path: string): string {
  const words = path
    .replace(/[{}]/g, '')
    .split(/[^A-Za-z0-9]+/)
    .filter(Boolean);
  return lower(words.map(upper).join(''));
}

const upper = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);
const lower = (text: string) => text.charAt(0).toLowerCase() + text.slice(1);

/** `Authorities` is Authority, `Devices` Device. */
export function singular(plural: string): string {
  return plural.replace(/ies$/, 'y').replace(/s$/, '');
}
