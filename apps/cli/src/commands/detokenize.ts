/** `winnow detokenize`: token ids to text. */
import type { Command } from 'commander';
import type { CommandContext, CommandHost } from './command-host.js';
import { UsageError } from '../errors/errors.js';
import { formatJson } from '../terminal/format.js';
import { openTokenizer } from '../models/open-model.js';
import { readStdin } from '../terminal/read-text.js';
import { addGroup, flag } from '../flags/builders.js';
import { describe } from '../flags/help.js';
import { addModelOption, addOutputOptions, type CommonFlags } from '../flags/load.js';
import { parseIds } from '../flags/parse-values.js';

interface DetokenizeFlags extends CommonFlags {
  readonly special: boolean;
}

const examples = `
Examples:
  $ winnow detokenize 603 705 434
  $ winnow detokenize model.gguf 1,15043,3186
  $ winnow tokenize 'Hello world' | winnow detokenize

Separate ids by spaces or commas. Without ids they are read from stdin, also in the output format of tokenize.
`;

const idsPattern = /^[\d\s,[\]]+$/;

export function registerDetokenize(program: Command, host: CommandHost): void {
  const command = program.command('detokenize').argument('[model]', 'the model').argument('[ids...]', 'token ids');
  addGroup(addModelOption(command), {
    heading: 'Tokens',
    common: [flag('--no-special', 'omit special tokens')],
  });
  addOutputOptions(command, 'print one JSON object: text, count');
  describe(command, 'Prints the text of token ids.', examples);
  command.action((first: string | undefined, rest: readonly string[], flags: DetokenizeFlags) =>
    host.run(flags, (context) => detokenize(first, rest, flags, context)),
  );
}

async function detokenize(
  first: string | undefined,
  rest: readonly string[],
  flags: DetokenizeFlags,
  context: CommandContext,
): Promise<void> {
  const isModel = first !== undefined && flags.model === undefined && !idsPattern.test(first);
  const words = first === undefined ? [] : isModel ? rest : [first, ...rest];
  const ids = words.length > 0 ? parseIds('IDS', words.join(' ')) : await idsOfStdin(context);
  const { tokenizer } = await openTokenizer(isModel ? first : flags.model, context);
  const text = tokenizer.decode(ids, { skipSpecialTokens: !flags.special });
  const { out } = context;
  if (flags.json === true) await out.write(formatJson({ text, count: ids.length }));
  else await out.write(out.isTerminal && !text.endsWith('\n') ? `${text}\n` : text);
}

async function idsOfStdin({ io, signal }: CommandContext): Promise<number[]> {
  if (io.stdin.isTTY === true) throw new UsageError('IDS: expected token ids as arguments or from a pipe, got none');
  const text = await readStdin(io, signal);
  // a line of tokenize has the token's text after a tab
  const lines = text.split('\n').map((line) => line.split('\t', 1)[0] ?? '');
  return parseIds('IDS', lines.join('\n'));
}
