/** `winnow tokenize`: text to token ids. */
import type { Command } from 'commander';
import type { CommandContext, CommandHost } from './command-host.js';
import { UsageError } from '../errors/errors.js';
import { formatJson } from '../terminal/format.js';
import { isPlainlyModel } from '../models/model-location.js';
import { openTokenizer } from '../models/open-model.js';
import { readText, type TextFlags } from '../terminal/read-text.js';
import { shownText } from '../terminal/shown-text.js';
import { addGroup, flag } from '../flags/builders.js';
import { describe } from '../flags/help.js';
import { addModelOption, addOutputOptions, textOptions, type CommonFlags } from '../flags/load.js';

interface TokenizeFlags extends CommonFlags, TextFlags {
  readonly bos: boolean;
  readonly special: boolean;
  readonly ids?: boolean;
}

const examples = `
Examples:
  $ winnow tokenize 'The code of Alice'
  $ winnow tokenize model.gguf 'Hello world' --json
  $ winnow tokenize model.gguf -f story.txt --ids
  $ cat story.txt | winnow tokenize -m ./model-folder

A single argument is the text, unless it is an existing .gguf file or model folder; the text then comes from stdin. Each
output line has an id, a tab and the token's text as a JSON string.
`;

export function registerTokenize(program: Command, host: CommandHost): void {
  const command = program.command('tokenize').argument('[model]', 'the model').argument('[text]', 'the text');
  addGroup(addModelOption(command), {
    heading: 'Text',
    common: [
      ...textOptions('the text'),
      flag('--no-bos', 'do not add BOS, EOS, CLS or SEP'),
      flag('--no-special', 'treat special tokens in the text as plain text'),
    ],
  });
  addOutputOptions(command, 'print one JSON object: ids, pieces, count');
  addGroup(command, { heading: 'Output', common: [flag('--ids', 'print the ids on one line, separated by commas')] });
  describe(command, 'Prints the token ids of a text.', examples);
  command.action((first: string | undefined, second: string | undefined, flags: TokenizeFlags) =>
    host.run(flags, (context) => tokenize(sourcesOf(first, second, flags), flags, context)),
  );
}

interface Sources extends TextFlags {
  readonly model?: string | undefined;
}

function sourcesOf(first: string | undefined, second: string | undefined, flags: TokenizeFlags): Sources {
  const { model, prompt, file } = flags;
  const textFlags: TextFlags = { ...(prompt === undefined ? {} : { prompt }), ...(file === undefined ? {} : { file }) };
  const hasTextFlag = prompt !== undefined || file !== undefined;
  if (first === undefined) return { model, ...textFlags };
  if (second !== undefined) {
    if (model !== undefined || hasTextFlag) {
      throw new UsageError(`tokenize: expected MODEL and TEXT once each, got '${second}' in addition to the flags`);
    }
    return { model: first, prompt: second };
  }
  if (hasTextFlag) {
    if (model !== undefined)
      throw new UsageError(`tokenize: expected one text, got '${first}' in addition to the flags`);
    return { model: first, ...textFlags };
  }
  return model === undefined && isPlainlyModel(first) ? { model: first } : { model, prompt: first };
}

async function tokenize({ model, ...source }: Sources, flags: TokenizeFlags, context: CommandContext): Promise<void> {
  const text = await readText(context.io, source, context.signal);
  if (text === undefined)
    throw new UsageError('tokenize: expected a text as argument, from -p, -f or a pipe, got none');
  const { tokenizer } = await openTokenizer(model, context);
  const ids = tokenizer.encode(text, { addSpecialTokens: flags.bos, parseSpecialTokens: flags.special });
  const { out } = context;
  if (flags.json === true) {
    await out.write(formatJson({ ids, pieces: Array.from(ids, (id) => tokenizer.tokenText(id)), count: ids.length }));
  } else if (flags.ids === true) {
    await out.write(`${ids.join(',')}\n`);
  } else {
    for (const id of ids) await out.write(`${id}\t${JSON.stringify(shownText(tokenizer, id))}\n`);
  }
}
