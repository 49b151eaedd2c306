/** One of the processes that ask for the same device at once: prints the answers as JSON. */
const [url = '', authorization = '', serialNumber = '', count = '1'] = process.argv.slice(2);
const asked = Array.from({ length: Number(count) }, async () => {
  const body = JSON.stringify({ serialNumber });
  const headers = { authorization, 'content-type': 'application/json' };
  const answer = await fetch(`${url}/api/v1/enroll`, { method: 'POST', headers, body });
  return { status: answer.status, body: await answer.json() };
});
process.stdout.write(JSON.stringify(await Promise.all(asked)));
