/** Flags that several commands share. Names follow llama.cpp where it has the flag. */
import { Option, type Command } from 'commander';
import type { DType } from '@winnow/tensor';
import type { KvDTypes, OverflowPolicy } from '@winnow/engine';
import { UsageError } from './errors.js';
import { parseBytes, parseDType, parseKvDType, parseNumber, refuse, type NumberRule } from './parse-values.js';

/** Where a model comes from and whom the command talks to. */
export interface CommonFlags {
  readonly model?: string;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

/** How layers attend, in the language of policies. */
export interface AttentionFlags {
  readonly attention?: string;
  readonly prefill?: string;
  readonly decode?: string;
}

/** A calibration, and where weights are that a limit has no room for. */
export interface SparseFlags {
  readonly memory?: number;
  readonly sparse?: string;
  readonly maxActive?: number;
  readonly weightsHot?: 'fitting' | 'all';
  readonly weightsCold?: string;
  readonly weightsWarm?: 'same' | 'q8_0';
  readonly weightsCopy?: boolean;
  readonly verifyWeights?: boolean;
}

/** How a model is loaded. */
export interface LoadFlags extends CommonFlags, AttentionFlags, SparseFlags {
  readonly ctxSize?: number;
  /** Another name of `ctxSize`. */
  readonly ctx?: number;
  readonly threads?: number;
  readonly activations?: 'f32' | 'int8';
  readonly backend?: 'wasm' | 'reference';
  readonly batchSize?: number;
  /** Another name of `batchSize`. */
  readonly batch?: number;
  readonly kvDtype?: DType | KvDTypes;
  readonly kvRotation?: 'none' | 'hadamard';
  readonly eviction?: 'oldest' | 'least-attended';
  readonly kvHot?: number;
  readonly kvWarm?: number;
  readonly kvCold?: string;
  readonly quantize?: DType;
  readonly lora?: readonly string[];
  readonly loraScaled?: readonly string[];
  readonly profile?: boolean;
}

/** What a text has to match. */
export interface ConstraintFlags {
  readonly grammar?: string;
  readonly jsonSchema?: string;
}

/** How tokens are chosen and when to end. */
export interface GenerationFlags extends ConstraintFlags {
  readonly nPredict: number;
  readonly temp?: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
  readonly repeatPenalty?: number;
  readonly repeatLastN?: number;
  readonly presencePenalty?: number;
  readonly frequencyPenalty?: number;
  readonly seed?: number;
  readonly ignoreEos?: boolean;
  readonly stop?: readonly string[];
  readonly reversePrompt?: readonly string[];
  readonly escape?: boolean;
  readonly overflow?: OverflowPolicy;
}

/** Where a session comes from and goes to. */
export interface SessionFlags {
  readonly loadSession?: string;
  readonly saveSession?: string;
}

/** Where a text comes from. */
export interface TextFlags {
  readonly prompt?: string;
  readonly file?: string;
}

type RuleName = 'count' | 'fromZero' | 'orMinusOne' | 'temperature' | 'share' | 'shareOrZero' | 'positive' | 'any';

export const numberRules: Readonly<Record<RuleName, NumberRule>> = {
  count: { integer: true, expected: 'an integer from 1', isValid: (value) => value >= 1 },
  fromZero: { integer: true, expected: 'an integer from 0', isValid: (value) => value >= 0 },
  orMinusOne: { integer: true, expected: 'an integer from 0, or -1', isValid: (value) => value >= -1 },
  temperature: { expected: 'a number from 0', isValid: (value) => value >= 0 },
  share: { expected: 'a number above 0, at most 1', isValid: (value) => value > 0 && value <= 1 },
  shareOrZero: { expected: 'a number from 0 to 1', isValid: (value) => value >= 0 && value <= 1 },
  positive: { expected: 'a number above 0', isValid: (value) => value > 0 },
  any: { expected: 'a number', isValid: () => true },
};

/** The long name of an option as people write it, for messages. */
function longName(flags: string): string {
  return /--[a-z-]+/.exec(flags)?.[0] ?? flags;
}

export function numberOption(flags: string, description: string, rule: NumberRule): Option {
  return new Option(flags, description).argParser((text) => parseNumber(longName(flags), text, rule));
}

/** Like `choices`, but with a message in the form of all others. */
export function choiceOption(flags: string, description: string, choices: readonly string[]): Option {
  return new Option(flags, `${description} (${choices.join(', ')})`).argParser((text) => {
    if (!choices.includes(text)) throw refuse(longName(flags), choices.join(', '), text);
    return text;
  });
}

export function sizeOption(flags: string, description: string): Option {
  return new Option(flags, description).argParser((text) => parseBytes(longName(flags), text));
}

export function listOption(flags: string, description: string): Option {
  return new Option(flags, description).argParser((text: string, previous: readonly string[] | undefined) => {
    if (text === '') throw refuse(longName(flags), 'a text', text);
    return [...(previous ?? []), text];
  });
}

export function addModelOption(command: Command): Command {
  return command.option('-m, --model <model>', 'the model, instead of the MODEL argument');
}

export function addOutputOptions(command: Command, json: string): Command {
  return command
    .option('--json', json)
    .option('-q, --quiet', 'only errors on stderr: no progress, warnings or summary');
}

export function addTextOptions(command: Command, what: string): Command {
  return command
    .option('-p, --prompt <text>', `${what} as text`)
    .option('-f, --file <path>', `${what} from a file, - for stdin; one line end at its end is dropped`);
}

export function addPlanOptions(command: Command): Command {
  return command
    .addOption(
      numberOption('-c, --ctx-size <n>', 'tokens of context; 0: as the model says, at most 4096', numberRules.fromZero),
    )
    .addOption(numberOption('--ctx <n>', 'the same', numberRules.fromZero).conflicts('ctxSize').hideHelp())
    .addOption(numberOption('-b, --batch-size <n>', 'most tokens per step of prompt processing', numberRules.count))
    .addOption(numberOption('--batch <n>', 'the same', numberRules.count).conflicts('batchSize').hideHelp())
    .addOption(
      new Option(
        '--kv-dtype <type>',
        'how keys and values are stored: f32 (default), f16, bf16, q8_0, ...; two for keys,values',
      ).argParser((text) => parseKvDType('--kv-dtype', text)),
    )
    .addOption(
      new Option('--quantize <type>', 'store the weights as q8_0, q4_0, q4_K, f16, ... while loading').argParser(
        (text) => parseDType('--quantize', text),
      ),
    )
    .addOption(
      choiceOption('--kv-rotation <kind>', 'hadamard: rotate keys before they are stored, for keys of 4 bits', [
        'none',
        'hadamard',
      ]),
    )
    .addOption(
      choiceOption('--eviction <rule>', 'which tokens --overflow evict drops; default oldest', [
        'oldest',
        'least-attended',
      ]),
    )
    .addOption(
      sizeOption('--kv-hot <size>', "keys and values in the backend's memory, at most, such as 256MB; default: all"),
    )
    .addOption(sizeOption('--kv-warm <size>', 'what of the rest stays in memory, at most; default: nothing'))
    .option('--kv-cold <folder>', 'where temporary files take what is left; default: nowhere')
    .addOption(listOption('--lora <file>', 'a LoRA adapter, .gguf or a PEFT folder; may be repeated'))
    .addOption(listOption('--lora-scaled <file scale>', 'the same with a factor; may be repeated'))
    .addOption(sizeOption('--memory <size>', `most memory of all, such as 2GB: ${memoryRule}`));
}

/** What `--memory` does with models that are larger. */
export const memoryRule = 'experts, and neurons with --sparse, stay in the file; other models are refused';

export function maxActiveOption(): Option {
  return numberOption(
    '--max-active <share>',
    'compute all neurons of layers of which more are active; default: from where on that is quicker',
    numberRules.shareOrZero,
  );
}

/** For commands that compute with a model. */
export function addSparseOption(command: Command): Command {
  return command
    .option('--sparse <file>', 'skip FFN neurons by a calibration of winnow calibrate, .sparse.safetensors')
    .addOption(maxActiveOption())
    .addOption(
      new Option(
        '--weights-hot <which>',
        'neurons that never leave memory with --memory: all that the calibration calls hot, or a smaller limit is refused; default: as many as fit',
      ).choices(['fitting', 'all']),
    )
    .option('--weights-cold <folder>', "where a temporary file of neurons goes; default: the system's")
    .addOption(
      new Option('--weights-warm <type>', 'how weights in memory beside the slots are kept; default: same').choices([
        'same',
        'q8_0',
      ]),
    )
    .option('--weights-copy', 'keep what has no place with --memory in memory in 4 bits, instead of reading the file')
    .option(
      '--verify-weights',
      'read all weights first and compare their checksum with that of the calibration; default: samples of every tensor',
    );
}

/** For commands that do not name policies in another way. */
export function addAttentionOptions(command: Command): Command {
  return command
    .option('--attention <policy>', 'how layers attend, such as subquadratic:window=256 or streaming; default dense')
    .option('--prefill <policy>', 'how tokens of prompts attend, such as h2o')
    .option('--decode <policy>', 'how generated tokens attend, such as sparq:rank=32,topk=128');
}

export function addLoadOptions(command: Command): Command {
  return addSparseOption(addPlanOptions(command))
    .addOption(numberOption('-t, --threads <n>', 'threads; default: all of the machine', numberRules.count))
    .addOption(
      choiceOption('--activations <type>', 'in products with quantised weights: int8, the default, or f32, exact', [
        'int8',
        'f32',
      ]),
    )
    .addOption(
      choiceOption('--backend <name>', 'what computes; default wasm, which has SIMD and threads', [
        'wasm',
        'reference',
      ]),
    );
}

export function addGenerationOptions(command: Command, nPredict: number, nPredictText: string): Command {
  return command
    .addOption(numberOption('-n, --n-predict <n>', nPredictText, numberRules.orMinusOne).default(nPredict))
    .addOption(numberOption('--temp <t>', 'temperature; 0: always the most probable token', numberRules.temperature))
    .addOption(numberOption('--top-k <k>', 'choose among the k most probable tokens; 0: all', numberRules.fromZero))
    .addOption(numberOption('--top-p <p>', 'choose among the fewest tokens that sum to p; 1: all', numberRules.share))
    .addOption(
      numberOption('--min-p <p>', 'drop tokens below this share of the best; 0: none', numberRules.shareOrZero),
    )
    .addOption(numberOption('--repeat-penalty <x>', 'penalty on repeated tokens; 1: off', numberRules.positive))
    .addOption(numberOption('--repeat-last-n <n>', 'tokens that penalties look back; -1: all', numberRules.orMinusOne))
    .addOption(numberOption('--presence-penalty <x>', 'subtracted from tokens seen; 0: off', numberRules.any))
    .addOption(numberOption('--frequency-penalty <x>', 'subtracted per occurrence; 0: off', numberRules.any))
    .addOption(numberOption('-s, --seed <n>', 'seed of the draws; -1: random', numberRules.orMinusOne))
    .option('--ignore-eos', 'go on after the end token')
    .option('--grammar <gbnf>', 'what the text has to match: a GBNF file, or a grammar itself')
    .option('--json-schema <schema>', 'the text has to be JSON that this schema accepts: a file, or the schema itself')
    .addOption(listOption('--stop <text>', 'end before this text; may be repeated'))
    .addOption(listOption('-r, --reverse-prompt <text>', 'the same as --stop'))
    .option('-e, --escape', 'read \\n, \\t, \\r, \\\\, \\" and \\\' in the texts of -p, --stop and -r')
    .addOption(
      choiceOption('--overflow <policy>', 'what to do when prompt and answer do not fit the context; default stop', [
        'stop',
        'error',
        'slide',
        'evict',
        'truncate-start',
        'truncate-middle',
      ]),
    );
}

export function addSessionOptions(command: Command, load: string): Command {
  return command
    .option('--load-session <file>', load)
    .option('--save-session <file>', 'at the end write the session to a file, to go on with later');
}

/** The model from its argument or its flag. */
export function chooseModel(argument: string | undefined, flag: string | undefined): string | undefined {
  if (argument !== undefined && flag !== undefined) {
    throw new UsageError(`--model: expected one model, got '${argument}' and '${flag}'`);
  }
  return argument ?? flag;
}
