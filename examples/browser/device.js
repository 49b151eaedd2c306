/** A device in the browser (mqtt.js over WebSocket): publishes readings and answers commands. */
const { mqtt } = globalThis;

function say(text) {
  document.querySelector('pre').append(`${text}\n`);
}

function begin({ url, account, device, secret }) {
  const root = `slipway/v1/${account}/d/${device}`;
  const client = mqtt.connect(url, { username: device, password: secret });
  const reply = (id, status, result) =>
    client.publish(`${root}/_commands/replies`, JSON.stringify({ id, status, result }), { qos: 1 });
  client.on('connect', () => {
    say('connected');
    client.subscribe(`${root}/_commands`, { qos: 1 });
  });
  client.on('message', (_topic, message) => {
    const { id, name, payload } = JSON.parse(message.toString());
    say(`command ${name}`);
    reply(id, 'accepted');
    if (name === 'echo') reply(id, 'succeeded', payload);
    else reply(id, 'failed', 'unknown command');
  });
  client.on('error', ({ message }) => say(message));
  const publish = () =>
    client.publish(`${root}/readings`, `,temperature,${(20 + Math.random()).toFixed(2)},`, { qos: 1 });
  publish();
  setInterval(publish, 10_000);
}

document.querySelector('form').addEventListener('submit', (event) => {
  event.preventDefault();
  begin(Object.fromEntries(new FormData(event.target)));
});
