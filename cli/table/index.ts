/** Every command of `slipway`. CONTRIBUTING.md says how to add one. */
import { type Command, command } from '../command.ts';
import { cellsCommands } from './cells.ts';
import { deviceCommands } from './devices.ts';
import { factoryCommands } from './factory.ts';
import { loginCommands } from './login.ts';
import { operatorCommands } from './operator.ts';

const completion = command({
  words: 'completion',
  group: 'Shell',
  summary: 'prints the completion script of a shell',
  operands: [{ name: 'SHELL', about: 'the shell', choices: ['bash', 'zsh', 'fish'] }],
  flags: {},
  examples: [
    'source <(slipway completion bash)                                  # in ~/.bashrc',
    'source <(slipway completion zsh)                                   # in ~/.zshrc, after compinit',
    'slipway completion fish > ~/.config/fish/completions/slipway.fish',
  ],
  run: async (_given, [name = '']) => (await import('../completion.ts')).completion(name, commands),
});

export const commands: readonly Command[] = [
  ...loginCommands,
  ...operatorCommands,
  ...factoryCommands,
  ...deviceCommands,
  ...cellsCommands,
  completion,
];
