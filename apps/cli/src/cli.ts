/** The program: commands, help, and the conversion of errors to a line and an exit code. */
import { Command, CommanderError } from 'commander';
import { visibleOptions } from './flags/help.js';
import { joinScaledAdapters } from './flags/scaled-adapters.js';
import { CommandHost } from './commands/command-host.js';
import { errorLine, exitCodeOf, exitCodes, OutputClosedError } from './errors/errors.js';
import type { CliIo } from './terminal/io.js';
import { Output } from './terminal/output.js';
import { commandModules, type Register } from './commands/modules.js';
import { printable } from './errors/printable.js';
import { suggest, suggestionLine } from './errors/suggestion.js';

const about = `
MODEL is the path or URL (https:// or s3://) of a .gguf file, a Hugging Face folder (a path, or a URL that ends in /), or a
hub repository: owner/name or hf:owner/name[@revision][:file]. The default is the demo model, which needs no download.

Examples:
  $ winnow run -p 'Once upon a time' -n 100 --seed 7
  $ winnow chat
  $ winnow serve model.gguf --port 8080
  $ winnow inspect model.gguf
  $ winnow run --help

Exit codes: 0 success, 1 file, network or backend failure, 2 invalid flag or argument, 3 broken model file, 4 prompt,
context or memory too large, 130 interrupted by Ctrl-C. WINNOW_DEBUG=1 adds a stack trace to errors.
`;

/** Runs one command line (without the program's own name) and resolves to the exit code. */
export async function main(argv: readonly string[], io: CliIo): Promise<number> {
  const out = new Output(io.stdout);
  io.stderr.on('error', () => {}); // stderr is closed
  try {
    await dispatch(argv, io, out);
    await out.flush();
    return exitCodes.ok;
  } catch (error) {
    await out.flush().catch(() => {});
    if (!(error instanceof OutputClosedError)) {
      io.stderr.write(`winnow: ${errorLine(error)}\n${suggestionLine(error, argv)}`);
      if (isDebugging(io) && error instanceof Error) io.stderr.write(`${printable(String(error.stack))}\n`);
    }
    return exitCodeOf(error);
  }
}

async function dispatch(argv: readonly string[], io: CliIo, out: Output): Promise<void> {
  let help = '';
  const program = createProgram(io, (text) => {
    help += text;
  });
  const host = new CommandHost(io, out);
  for (const register of await loadCommands(argv)) register(program, host);
  if (argv.length === 0) {
    io.stderr.write(program.helpInformation());
    throw new CommanderError(exitCodes.usage, 'winnow.noCommand', 'expected a command, got none');
  }
  try {
    await program.parseAsync(joinScaledAdapters(withoutUnknownTopic(argv, program)), { from: 'user' });
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error;
    if (error.exitCode !== 0) throw usageOf(error, argv, program);
  }
  await out.write(help);
}

/** `help rnu` is the unknown command `rnu`, whose error names the nearest one. */
function withoutUnknownTopic(argv: readonly string[], program: Command): readonly string[] {
  const [first, name] = argv;
  const isUnknown = first === 'help' && name !== undefined && !program.commands.some((entry) => entry.name() === name);
  return isUnknown && name !== 'help' && !name.startsWith('-') ? argv.slice(1) : argv;
}

/** Only the command that is called, or all where the help or an error may name them. */
function loadCommands(argv: readonly string[]): Promise<readonly Register[]> {
  const [name = ''] = argv;
  if (name === '--version' || name === '-V') return Promise.resolve([]);
  const load = Object.hasOwn(commandModules, name) ? commandModules[name] : undefined;
  const modules = load === undefined ? new Set(Object.values(commandModules)) : [load];
  return Promise.all(Array.from(modules, (each) => each()));
}

function createProgram(io: CliIo, writeHelp: (text: string) => void): Command {
  return new Command('winnow')
    .description('Runs language and embedding models on this computer.')
    .version(io.version, '-V, --version', 'print the version')
    .helpOption('-h, --help', 'print help')
    .helpCommand('help [command]', 'print help for a command')
    .addHelpText('after', about)
    .showSuggestionAfterError(true)
    .enablePositionalOptions() // `eval sts` has its own flags
    .exitOverride()
    .configureHelp({ visibleOptions })
    .configureOutput({
      writeOut: writeHelp,
      writeErr: () => {},
      outputError: () => {},
      getOutHelpWidth: () => Math.max(60, Math.min(io.stdout.columns ?? 100, 120)),
      getOutHasColors: () => false,
    });
}

/** Commander's messages in our format, with a pointer to the help. */
function usageOf(error: CommanderError, argv: readonly string[], program: Command): CommanderError {
  const command = program.commands.find((entry) => entry.name() === argv[0]);
  const where = command === undefined ? ['--help'] : [command.name(), '--help'];
  const text = error.message.replace(/^error: /, '').replaceAll(/\s*\n\s*/g, ' ');
  return suggest(new CommanderError(exitCodes.usage, error.code, text), where);
}

function isDebugging(io: CliIo): boolean {
  const value = io.env['WINNOW_DEBUG'];
  return value !== undefined && value !== '' && value !== '0';
}
