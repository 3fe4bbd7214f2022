/** `winnow logits`: log-probabilities after given tokens. */
import type { Command } from 'commander';
import type { Model } from '@winnow/engine';
import { selectTopK } from '@winnow/ops';
import { encode } from '@winnow/tensor';
import type { CommandContext, CommandHost } from './command-host.js';
import { formatPercent, formatTable } from '../terminal/format.js';
import { displayName } from '../models/model-location.js';
import { loadOptionsOf } from '../flags/engine-options.js';
import { openModel } from '../models/open-model.js';
import { shownText } from '../terminal/shown-text.js';
import { addGroup, flag, numberOption, numberRules } from '../flags/builders.js';
import { describe } from '../flags/help.js';
import {
  addModelOption,
  addOutputOptions,
  addLoadOptions,
  chooseModel,
  tokensOption,
  type LoadFlags,
} from '../flags/load.js';
import { parsePositions } from '../flags/parse-values.js';

interface LogitsFlags extends LoadFlags {
  readonly tokens: readonly number[];
  readonly positions: string;
  readonly top: number;
}

const examples = `
Examples:
  $ winnow logits --tokens 603,705,434
  $ winnow logits model.gguf --tokens 1,2,3 --positions 0,last --json
  $ winnow logits model.gguf --tokens "$(winnow tokenize model.gguf 'Hello world' --ids)"

Nothing is added to the tokens. With --json: {"positions":[...],"logprobs":[...],"vocab":N, ...}, where each entry of
"logprobs" is a base64 string of little-endian 32-bit floats: natural logarithms over the whole vocabulary.
`;

export function registerLogits(program: Command, host: CommandHost): void {
  const command = program.command('logits').argument('[model]', 'the model (default: the demo model)');
  addGroup(addModelOption(command), {
    heading: 'Prompt',
    common: [
      tokensOption().makeOptionMandatory(),
      flag('--positions <list>', "positions to report: indices from 0, 'last' or 'all'").default('last', 'last'),
      numberOption('--top <n>', 'number of tokens to print per position', numberRules.count).default(10),
    ],
  });
  addOutputOptions(addLoadOptions(command), 'print one JSON object with the whole vocabulary');
  describe(command, 'Prints the log-probabilities of the next token.', examples);
  command.action((model: string | undefined, flags: LogitsFlags) =>
    host.run(flags, (context) => logits(chooseModel(model, flags.model), flags, context)),
  );
}

async function logits(modelName: string | undefined, flags: LogitsFlags, context: CommandContext): Promise<void> {
  const { tokens } = flags;
  const positions = parsePositions('--positions', flags.positions, tokens.length);
  await using model = await openModel(modelName, loadOptionsOf(flags), context);
  const rows = await model.logprobs(tokens, { positions, signal: context.signal });
  if (flags.json === true) {
    const head = {
      model: displayName(modelName, model.name),
      backend: model.backend,
      vocab: model.config.vocabSize,
      tokens,
      positions,
    };
    return printJson(head, rows, context);
  }
  for (const [index, row] of rows.entries()) {
    const position = positions[index] as number;
    const token = tokens[position] as number;
    const title = `after position ${position}: ${token} ${JSON.stringify(shownText(model.tokenizer, token))}\n`;
    await context.out.write(`${index === 0 ? '' : '\n'}${title}${topTable(model, row, flags.top)}`);
  }
}

function topTable(model: Model, row: Float32Array, count: number): string {
  const k = Math.min(count, row.length);
  const [ids, logprobs] = [new Int32Array(k), new Float32Array(k)];
  selectTopK(row, 0, row.length, k, ids, logprobs);
  const lines = Array.from(ids, (id, rank) => {
    const logprob = logprobs[rank] as number;
    return [
      `${id}`,
      logprob.toFixed(4),
      formatPercent(Math.exp(logprob), 2),
      JSON.stringify(shownText(model.tokenizer, id)),
    ];
  });
  return formatTable([['id', 'logprob', 'share', 'text'], ...lines]);
}

/** Written in parts: the positions of a long text would not fit into one string. */
async function printJson(head: object, rows: readonly Float32Array[], { out }: CommandContext): Promise<void> {
  await out.write(`${JSON.stringify(head).slice(0, -1)},"logprobs":[`);
  for (const [index, row] of rows.entries()) await out.write(`${index === 0 ? '' : ','}"${base64OfFloats(row)}"`);
  await out.write(']}\n');
}

function base64OfFloats(values: Float32Array): string {
  const bytes = Buffer.alloc(values.byteLength);
  encode('f32', values, bytes);
  return bytes.toString('base64');
}
