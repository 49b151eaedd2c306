/** Writes the configuration of HAProxy (2.6 or newer): every connection goes to the cell of its account. */

import { isIPv6 } from 'node:net';
import { dirname, join } from 'node:path';
import type { Cell, CellsConfig } from '../config.ts';
import { lookupAction, lookupFile } from './lookup.ts';
import { mapFiles } from './maps.ts';

/** As the broker's own listeners: TLS 1.2 with forward secrecy and authenticated encryption, and TLS 1.3. */
const ciphers =
  'ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305';
/** One and a half times the longest keep-alive of MQTT, so HAProxy never ends a connection that the client thinks is open. */
const longest = '28h';
/** The operator's endpoints have to be asked at the cells themselves. A request for `*metrics` has no path to look at. */
const operatorPaths = '^/+(metrics|health|cell)(/|$)';
/** Requests without a token, whose body says which account they are about. */
const bodyPaths = '^/+api/v1/(auth/|users/[^/]+/change-password-with-token)';
/** What `newId` makes. Only these carry digits; an id that a CA has put into a CN may look so, too. */
export const ownUuid = /^.{14}7.{4}[89ab]/i;
const uuid = '[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}';

/** The content of `haproxy.cfg`, which reads its map files from `directory`. */
export function haproxyConfig(config: CellsConfig, directory: string): string {
  const cells = [...config.cells.values()];
  const maps = {
    slots: join(directory, mapFiles.slots),
    ids: join(directory, mapFiles.ids),
    hosts: join(directory, mapFiles.hosts),
    lookup: config.public.lookup,
  };
  const sections = [
    head(config, directory),
    defaults,
    httpFrontend(config, maps),
    ...cells.map((cell) => httpBackend(config, cell)),
    anyHttpBackend(config, cells),
    mqttFrontend(config, maps),
    ...mqttsFrontends(config, maps),
    ...cells.map(mqttBackend),
    anyMqttBackend(cells),
    ...cells.filter(({ tls }) => tls).map(mqttsBackend),
    lookupFrontend(config),
  ];
  return `${sections.map((lines) => lines.join('\n')).join('\n\n')}\n`;
}

type Maps = { slots: string; ids: string; hosts: string; lookup: CellsConfig['public']['lookup'] };
type Lines = readonly string[];

function head({ public: { adminSocket, user } }: CellsConfig, directory: string): Lines {
  return [
    '# Written by `slipway cells write`. Change cells.yaml and run the command again.',
    '# Environment: SLIPWAY_METRICS_TOKEN, if the cells have one.',
    'global',
    `  user ${user}`,
    `  group ${user}`,
    '  log stdout format raw daemon notice',
    `  lua-load ${join(directory, lookupFile)}`,
    `  stats socket ${adminSocket} mode 600 level admin`,
    '  ssl-default-bind-options ssl-min-ver TLSv1.2',
    `  ssl-default-bind-ciphers ${ciphers}`,
    '',
    '# Host names of cells are asked for again while HAProxy runs.',
    'resolvers system',
    '  parse-resolv-conf',
  ];
}

const defaults: Lines = [
  'defaults',
  '  log global',
  '  option dontlognull',
  '  timeout connect 5s',
  '  timeout http-request 10s',
  '  timeout http-keep-alive 60s',
  '  timeout client-fin 30s',
  '  timeout server-fin 30s',
];

/** Where HAProxy asks itself, and so a cell, for an id. */
export function lookupSocket({ public: { adminSocket } }: CellsConfig): string {
  return `unix@${join(dirname(adminSocket), 'slipway-lookup.sock')}`;
}

/** Only HAProxy can open it. The script says which cell is asked, and never sees the token. */
function lookupFrontend(config: CellsConfig): Lines {
  return [
    'frontend lookup',
    '  mode http',
    `  bind ${lookupSocket(config)} user ${config.public.user} mode 600`,
    '  timeout client 10s',
    '  http-request deny unless { path /cell/lookup }',
    '  http-request set-var(txn.cell) req.hdr(x-slipway-cell)',
    `  http-request set-header authorization "Bearer \${SLIPWAY_METRICS_TOKEN}"`,
    '  use_backend http-%[var(txn.cell)]',
  ];
}

/**
 * The cell of the id in the variable `id`: its account is in the map, or a cell knows it, or the digits say it. An id that
 * `newId` cannot have made is looked up; a UUIDv7 is, if cells.yaml says so. An answer that does not come is not guessed.
 */
function byId(rule: string, scope: string, maps: Maps, refusal: string): Lines {
  const [cell, id] = [`${scope}.cell`, `var(${scope}.id)`];
  const open = `!{ var(${cell}) -m found } { ${id} -m found }`;
  const own = maps.lookup === 'all' ? '' : ` !{ ${id} -m reg -i ${ownUuid.source} }`;
  return [
    `  ${rule} set-var(${cell}) ${id},lower,map_str(${maps.ids}),map_str(${maps.slots}) if ${open}`,
    `  ${rule} ${lookupAction} ${scope} if ${open} { ${id} -m reg ^${uuid}$ }${own}`,
    `  ${rule} ${refusal} if { var(${scope}.lookup) -m str busy }`,
    `  ${rule} set-var(${cell}) var(${scope}.slot),map_str(${maps.slots}) if !{ var(${cell}) -m found } { var(${scope}.slot) -m found }`,
    `  ${rule} ${bySlot(cell, `${id},bytes(26,3)`, maps, ` { ${id} -m reg ^${uuid}$ }`)}`,
  ];
}

/** Sets `variable` to the cell of a slot that `expression` has, unless it is set. */
function bySlot(variable: string, expression: string, maps: Maps, condition = ''): string {
  return `set-var(${variable}) ${expression},lower,map_str(${maps.slots}) if !{ var(${variable}) -m found }${condition}`;
}

function httpFrontend({ public: side }: CellsConfig, maps: Maps): Lines {
  const { certificate, headerPrefix } = side;
  const cell = 'txn.cell';
  const undecided = `!{ var(${cell}) -m found }`;
  const slot = (expression: string, condition = '') => `  http-request ${bySlot(cell, expression, maps, condition)}`;
  const id = (expression: string, condition = '') => [
    `  http-request set-var(txn.id) ${expression} if ${undecided}${condition}`,
    ...byId('http-request', 'txn', maps, busy),
    '  http-request unset-var(txn.id)',
  ];
  const busy = `return status 503 content-type application/json string ${quoted(unavailable)} hdr retry-after 5`;
  const json = (name: string) => `req.body,json_query('$.${name}')`;
  return [
    'frontend http',
    '  mode http',
    `  bind ${bound(side.address, side.http)}${certificate === undefined ? '' : ` ssl crt ${certificate} alpn h2,http/1.1`}`,
    '  timeout client 75s',
    '  monitor-uri /health/live',
    '  http-request set-header X-Forwarded-For %[src]',
    `  http-request set-header X-Forwarded-Proto ${certificate === undefined ? 'http' : 'https'}`,
    `  http-request return status 404 content-type application/json string ${quoted(notFound)} if { path,url_dec -m reg -i ${operatorPaths} } || !{ path_beg / }`,
    '  # The token of the caller: a JWT as Bearer or cookie, or a token that begins with the digits.',
    slot(`http_auth_bearer,jwt_payload_query('$.accountId'),bytes(26,3)`),
    slot('http_auth_bearer,bytes(4,3)', ' { http_auth_bearer -m beg slp_ }'),
    slot(`req.cook(${headerPrefix}-access-token),jwt_payload_query('$.accountId'),bytes(26,3)`),
    slot('req.hdr(accesstoken),bytes(0,3)'),
    slot(`req.hdr(${headerPrefix}-mfa-token),bytes(0,3)`),
    '  # A device with its id and secret, or one that enrolls with the id of its group, and a serial number behind it.',
    ...id('http_auth_user,field(1,/)'),
    '  # Requests without a token name the account in their query or in a short body.',
    slot(`url_param(state),bytes(0,3)`, ' { path_end /oauth2/callback }'),
    slot(`url_param(jwt),jwt_payload_query('$.accountId'),bytes(26,3)`),
    slot('url_param(accountId),bytes(26,3)'),
    ...id('url_param(providerId)'),
    `  acl has-body path -m reg ${bodyPaths}`,
    `  http-request wait-for-body time 10s if ${undecided} METH_POST has-body`,
    slot(`${json('accountId')},bytes(26,3)`, ' METH_POST has-body'),
    slot('req.body_param(accountId),bytes(26,3)', ' METH_POST has-body'),
    slot(`${json('passwordResetToken')},bytes(0,3)`, ' METH_POST has-body'),
    slot('req.body_param(passwordResetToken),bytes(0,3)', ' METH_POST has-body'),
    slot(`${json('token')},bytes(0,3)`, ' METH_POST has-body'),
    slot('req.body_param(token),bytes(0,3)', ' METH_POST has-body'),
    slot(`${json('jwt')},jwt_payload_query('$.accountId'),bytes(26,3)`, ' METH_POST has-body'),
    '  # The topic in the path begins with the account; other paths have an id.',
    ...id(`'path,url_dec,regsub("^.*?/(${uuid})(/.*)?$","\\1")'`),
    ...byHost('http-request', cell, 'req.hdr(host)', maps),
    '  # Which account is the only one is a question to one cell.',
    `  http-request return status 404 content-type application/json string ${quoted(noDefaultAccount)} if ${undecided} { path -m reg ^/+api/v1/auth/default-account/?$ }`,
    `  use_backend http-%[var(${cell})] if { var(${cell}) -m found }`,
    '  # Not every cell has a certificate, and nobody is told by it which one answers.',
    certificate === undefined
      ? '  http-response del-header strict-transport-security'
      : '  http-response set-header strict-transport-security "max-age=31536000; includeSubDomains"',
    '  default_backend http-any',
  ];
}

/** By the first label of a host name: a cell, as `c01`, or the slot of an account, as `slot-b1d`. */
function byHost(rule: string, variable: string, host: string, maps: Maps): Lines {
  const label = `${host},lower,field(1,.)`;
  const undecided = `if !{ var(${variable}) -m found }`;
  return [
    '  # The host name of a slot or of a cell.',
    `  ${rule} set-var(${variable}) ${label},regsub(^slot-,),map_str(${maps.slots}) ${undecided} { ${label} -m reg ^slot-[0-9a-f]{3}$ }`,
    `  ${rule} set-var(${variable}) ${label},map_str(${maps.hosts}) ${undecided}`,
  ];
}

/** What a CONNECT is routed by: its token, its username, or its client id where it has no username. */
function connectRules(maps: Maps): Lines {
  const value = (field: string) => `req.payload(0,0),mqtt_field_value(connect,${field})`;
  const cell = 'sess.cell';
  return [
    '  tcp-request inspect-delay 10s',
    '  # What does not begin as a CONNECT is not waited for.',
    '  tcp-request content reject if { req.len gt 0 } !{ req.payload(0,1),hex -m str 10 }',
    '  tcp-request content reject unless { req.payload(0,0),mqtt_is_valid }',
    `  tcp-request content set-var(sess.id) ${value('username')}`,
    `  tcp-request content set-var(sess.id) ${value('client_identifier')} if !{ var(sess.id) -m len gt 0 }`,
    "  tcp-request content set-var(sess.id) var(sess.id),regsub('^enroll/',''),field(1,/) if { var(sess.id) -m beg enroll/ }",
    `  tcp-request content set-var(${cell}) ${value('password')},jwt_payload_query('$.accountId'),bytes(26,3),lower,map_str(${maps.slots}) if { var(sess.id) -m str Auth:JWT }`,
    ...byId('tcp-request content', 'sess', maps, 'reject'),
  ];
}

function mqttFrontend({ public: { address, mqtt } }: CellsConfig, maps: Maps): Lines {
  return [
    'frontend mqtt',
    '  mode tcp',
    `  bind ${bound(address, mqtt)}`,
    `  timeout client ${longest}`,
    ...connectRules(maps),
    '  use_backend mqtt-%[var(sess.cell)] if { var(sess.cell) -m found }',
    '  default_backend mqtt-any',
  ];
}

/**
 * MQTT over TLS. A host name of a cell with a certificate of its own, or of a slot there, is passed through, because only
 * the cell can read client certificates. Everything else ends here, if there is a certificate.
 */
function mqttsFrontends(config: CellsConfig, maps: Maps): Lines[] {
  const { address, certificate, mqtts, adminSocket, user } = config.public;
  const passes = [...config.cells.values()].filter(({ tls }) => tls);
  if (certificate === undefined && passes.length === 0) return [];
  const inner = `unix@${join(dirname(adminSocket), 'slipway-mqtts.sock')}`;
  const outer = [
    'frontend mqtts',
    '  mode tcp',
    `  bind ${bound(address, mqtts)}`,
    `  timeout client ${longest}`,
    '  tcp-request inspect-delay 10s',
    '  tcp-request content reject unless { req.ssl_hello_type 1 }',
    ...byHost('tcp-request content', 'sess.cell', 'req.ssl_sni', maps),
    ...passes.map(({ name }) => `  use_backend mqtts-${name} if { var(sess.cell) -m str ${name} }`),
    ...(certificate === undefined ? [] : ['  default_backend mqtts-here']),
  ];
  if (certificate === undefined) return [outer];
  return [
    outer,
    ['backend mqtts-here', '  mode tcp', `  timeout server ${longest}`, `  server here ${inner} send-proxy-v2`],
    [
      'frontend mqtts-here',
      '  mode tcp',
      `  bind ${inner} user ${user} mode 600 accept-proxy ssl crt ${certificate}`,
      `  timeout client ${longest}`,
      ...connectRules(maps),
      ...byHost('tcp-request content', 'sess.cell', 'ssl_fc_sni', maps),
      '  use_backend mqtt-%[var(sess.cell)] if { var(sess.cell) -m found }',
      '  default_backend mqtt-any',
    ],
  ];
}

/** One cell serves its accounts, so there is no other server to try. It stays in use while it is alive. */
function httpBackend(config: CellsConfig, cell: Cell): Lines {
  return [
    `backend http-${cell.name}`,
    ...httpBackendOptions('/health/live'),
    `  http-error status 503 content-type application/json string ${quoted(unavailable)} hdr retry-after 5`,
    `  server ${cell.name} ${serverOf(config, cell)}`,
  ];
}

/** What belongs to no account: pages of the console, and requests that any cell refuses. */
function anyHttpBackend(config: CellsConfig, cells: readonly Cell[]): Lines {
  return [
    'backend http-any',
    ...httpBackendOptions('/health/ready'),
    '  # The files of the console come from one cell, also while the others have another version.',
    '  balance source',
    '  option redispatch',
    ...cells.map((cell) => `  server ${cell.name} ${serverOf(config, cell)}`),
  ];
}

function httpBackendOptions(check: string): Lines {
  return [
    '  mode http',
    '  timeout server 130s',
    `  timeout tunnel ${longest}`,
    '  option httpchk',
    `  http-check send meth GET uri ${check} hdr authorization "Bearer \${SLIPWAY_METRICS_TOKEN}"`,
    '  http-check expect status 200',
  ];
}

function serverOf({ public: { cellAuthority } }: CellsConfig, cell: Cell): string {
  const verify = cellAuthority === undefined ? 'verify none' : `verify required ca-file ${cellAuthority}`;
  return [
    place(cell, cell.http),
    ...(cell.tls ? [`ssl ${verify}`] : []),
    'check inter 2s fall 3 rise 1',
    ...resolved(cell),
  ].join(' ');
}

function mqttBackend(cell: Cell): Lines {
  return [...tcpBackend(`mqtt-${cell.name}`), `  server ${mqttServer(cell)}`];
}

/** Connections whose CONNECT names nobody: any cell refuses them as it refuses others. */
function anyMqttBackend(cells: readonly Cell[]): Lines {
  return [...tcpBackend('mqtt-any'), '  balance source', ...cells.map((cell) => `  server ${mqttServer(cell)}`)];
}

function mqttsBackend(cell: Cell): Lines {
  return [...tcpBackend(`mqtts-${cell.name}`), `  server ${tcpServer(cell, cell.mqtts)}`];
}

function tcpBackend(name: string): Lines {
  return [`backend ${name}`, '  mode tcp', `  timeout server ${longest}`];
}

function mqttServer(cell: Cell): string {
  return tcpServer(cell, cell.mqtt);
}

/** Up as long as its HTTP port answers. */
function tcpServer(cell: Cell, port: number): string {
  return [
    cell.name,
    place(cell, port),
    'send-proxy-v2',
    `track http-${cell.name}/${cell.name}`,
    ...resolved(cell),
  ].join(' ');
}

/** `::` takes IPv4, too. */
function bound(address: string, port: number): string {
  return isIPv6(address) ? `[${address}]:${port}${address === '::' ? ' v4v6' : ''}` : `${address}:${port}`;
}

function place({ address }: Cell, port: number): string {
  return isIPv6(address) ? `[${address}]:${port}` : `${address}:${port}`;
}

/** A name that cannot be resolved yet does not keep HAProxy from starting. */
function resolved({ address }: Cell): Lines {
  return /^[\d.]+$/.test(address) || isIPv6(address) ? [] : ['resolvers system', 'init-addr last,libc,none'];
}

const notFound = { error: { code: 100, message: 'The endpoint does not exist.', details: [] } };
const noDefaultAccount = {
  statusCode: 404,
  error: 'Not Found',
  message: 'There are several accounts. Name yours with accountId.',
  attributes: { errorCode: 'NotFoundError', error: 'There are several accounts.', details: [] },
};
const unavailable = {
  error: {
    code: -199,
    message: 'The server of this account does not answer. Try again in a few seconds.',
    details: [],
  },
};

function quoted(answer: object): string {
  return `'${JSON.stringify(answer)}'`;
}
