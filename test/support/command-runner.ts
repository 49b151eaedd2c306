/** The other end of command.ts: each message is a call of `slipway`, which takes its arguments and variables from the process. */

export interface Call {
  file: string;
  args: string[];
  env: Record<string, string>;
}

export interface Ended {
  code: number;
  stdout: string;
  stderr: string;
}

let calls = 0;

async function run({ file, args, env }: Call): Promise<Ended> {
  const said = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const)
    process[name].write = (chunk: string | Uint8Array) => {
      said[name] += typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString();
      return true;
    };
  for (const name of Object.keys(process.env)) delete process.env[name];
  Object.assign(process.env, env);
  process.argv.splice(1, process.argv.length, file, ...args);
  process.exitCode = undefined;
  calls += 1;
  try {
    // Only the file itself is run again: what it imports is loaded.
    await import(`${file}?${calls}`);
  } catch (error) {
    process.exitCode = 1;
    said.stderr += error instanceof Error ? error.stack : String(error);
  }
  return { code: Number(process.exitCode ?? 0), ...said };
}

process.on('message', async (call: Call) => process.send?.(await run(call)));
