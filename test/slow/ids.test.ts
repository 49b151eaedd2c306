/** Ids that go through the real HAProxy with its real rules and maps: it sends none to the wrong cell. */
import { connect } from 'node:net';
import t from 'tap';
import { cellOfAccount } from '../../cells/config.ts';
import { newAccountId, newId } from '../../src/core/ids.ts';
import { startProxy } from '../support/cells.ts';
import { withHaproxy } from '../support/haproxy.ts';

/** How many; 20,000 take half a second. */
const asked = Number(process.env.TEST_IDS ?? 20_000);
const base64 = (text: string) => Buffer.from(text).toString('base64url');

/** What names an account: the id of one of its entities in a path or as a user, and the account in a token or a query. */
const requests: ((accountId: string) => string)[] = [
  (accountId) => `GET /api/v1/devices/${newId(accountId)} HTTP/1.1\r\nhost: a\r\n`,
  (accountId) => `GET / HTTP/1.1\r\nhost: a\r\nauthorization: Basic ${btoa(`${newId(accountId)}:secret`)}\r\n`,
  (accountId) =>
    `GET / HTTP/1.1\r\nhost: a\r\nauthorization: Bearer ${base64('{}')}.${base64(JSON.stringify({ accountId }))}.x\r\n`,
  (accountId) => `GET /api/v1/devices?accountId=${accountId.toUpperCase()} HTTP/1.1\r\nhost: a\r\n`,
];

t.test('no id is sent to the wrong cell', { ...withHaproxy, timeout: 600_000 }, async (t) => {
  const nowhere = { url: 'http://127.0.0.1:1', mqttPort: 1 };
  // HAProxy itself answers with the name of the cell that it has chosen.
  const chosen = '  use_backend http-%[var(txn.cell)] if { var(txn.cell) -m found }\n  # Not every';
  const answering = '  http-request return status 200 content-type text/plain lf-string %[var(txn.cell)]\n';
  const proxied = await startProxy(t, [nowhere, nowhere], {
    edit: (configuration) => configuration.replace(chosen, answering + chosen),
  });
  const accounts = Array.from({ length: 500 }, () => newAccountId(new Map()));
  const socket = connect(proxied.ports.http, '127.0.0.1');
  t.teardown(() => socket.destroy());
  socket.setEncoding('latin1');
  const answers = socket[Symbol.asyncIterator]();
  let [wrong, seen] = [0, 0];
  for (let done = 0; done < asked; done += accounts.length) {
    const form = requests[(done / accounts.length) % requests.length] as (typeof requests)[number];
    socket.write(accounts.map((accountId) => `${form(accountId)}\r\n`).join(''));
    let text = '';
    while (text.split('\r\n\r\nc0').length <= accounts.length) text += (await answers.next()).value;
    const cells = [...text.matchAll(/\r\n\r\n(c0\d)/g)].map(([, cell]) => cell);
    seen += cells.length;
    wrong += accounts.filter((accountId, place) => cells[place] !== cellOfAccount(proxied.config, accountId)).length;
  }
  t.strictSame({ seen, wrong }, { seen: asked, wrong: 0 });
});
