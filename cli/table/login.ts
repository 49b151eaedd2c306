/** Commands that log a person in and out. */
import { command } from '../command.ts';
import { forTheLine } from '../guards.ts';

const ca = { value: 'FILE', about: 'PEM file of the CA of the server', completes: 'files' } as const;
const common = {
  group: 'Login',
  exitCodes: { 0: 'done', 2: 'wrong usage or input', 3: 'server or network', 4: 'refused' },
} as const;

export const loginCommands = [
  command({
    ...common,
    words: 'login',
    summary: 'logs you in for the other commands',
    about: 'Asks on the terminal for what is not given. The token is kept in a file that you alone can read.',
    flags: {
      server: { value: 'URL', about: 'the server', otherwise: 'the last one, or http://127.0.0.1:3000' },
      account: { value: 'ID', about: 'the account', otherwise: 'the only account' },
      email: { value: 'EMAIL', about: 'your email address' },
      passwordStdin: { about: 'reads the password from standard input' },
      code: { value: 'CODE', about: 'code of your second factor' },
      ca,
      json: { about: 'prints JSON' },
    },
    examples: [
      'slipway login --server https://things.example.com',
      'slipway login --email ada@example.com --password-stdin < password.txt',
    ],
    run: (given) => forTheLine(async () => (await import('../login.ts')).login(given)),
  }),
  command({
    ...common,
    words: 'logout',
    summary: 'ends the session of slipway login',
    flags: { ca },
    examples: ['slipway logout'],
    run: (given) => forTheLine(async () => (await import('../login.ts')).logout(given)),
  }),
];
