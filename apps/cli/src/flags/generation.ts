/**
 * Flags of sampling, stopping, constraints and sessions. Names are those of the engine's options (`errors/names.ts`);
 * llama.cpp's are aliases.
 */
import type { Command } from 'commander';
import type { OverflowPolicy } from '@winnow/engine';
import {
  addGroup,
  choiceOption,
  flag,
  listOption,
  listWithAliases,
  numberOption,
  numberRules,
  withAliases,
} from './builders.js';

/** What the generated text must match. */
export interface ConstraintFlags {
  readonly grammar?: string;
  readonly jsonSchema?: string;
  readonly compileTimeout?: number;
}

/** Sampling, and when to stop. */
export interface GenerationFlags extends ConstraintFlags {
  readonly maxTokens: number;
  readonly temperature?: number;
  readonly topK?: number;
  readonly topP?: number;
  readonly minP?: number;
  readonly repetitionPenalty?: number;
  readonly penaltyWindow?: number;
  readonly presencePenalty?: number;
  readonly frequencyPenalty?: number;
  readonly seed?: number;
  readonly ignoreEos?: boolean;
  readonly stop?: readonly string[];
  readonly escape?: boolean;
  readonly overflow?: OverflowPolicy;
}

/** Session files. */
export interface SessionFlags {
  readonly loadSession?: string;
  readonly saveSession?: string;
  readonly sessionKeyFile?: string;
}

const overflowPolicies = ['stop', 'error', 'slide', 'evict', 'truncate-start', 'truncate-middle'] as const;

export function addGenerationOptions(command: Command, maxTokens: number, what: string): Command {
  const { orMinusOne } = numberRules;
  const length = `maximum number of tokens ${what}; -1: no limit`;
  return addSamplingOptions(
    addGroup(command, {
      heading: 'Generation',
      common: [
        ...withAliases(
          numberOption('-n, --max-tokens <n>', length, orMinusOne).default(maxTokens),
          '--n-predict <n>',
          '--predict <n>',
        ),
        ...listWithAliases(
          listOption('--stop <text>', 'stop sequence; may be repeated'),
          '-r, --reverse-prompt <text>',
        ),
        flag('--json-schema <schema>', 'generate JSON that this schema accepts: a file or the schema itself'),
        flag('--grammar <gbnf>', 'generate text that this grammar accepts: a GBNF file or the grammar itself'),
      ],
      advanced: [
        flag('--ignore-eos', 'continue after the end token'),
        flag('-e, --escape', 'process \\n, \\t, \\r, \\\\, \\" and \\\' in -p and --stop'),
        numberOption(
          '--compile-timeout <s>',
          'seconds that compiling a grammar or schema may take (default: unlimited)',
          numberRules.positive,
        ),
        choiceOption('--overflow <policy>', 'what to do when the context is full', overflowPolicies, 'stop'),
      ],
    }),
  );
}

function addSamplingOptions(command: Command): Command {
  const { temperature, fromZero, share, shareOrZero, orMinusOne, positive, any } = numberRules;
  return addGroup(command, {
    heading: 'Sampling',
    common: [
      ...withAliases(
        numberOption('--temperature <t>', 'sampling temperature; 0: greedy (default: 0.8)', temperature),
        '--temp <t>',
      ),
      numberOption('--top-k <k>', 'sample from the k most probable tokens; 0: all (default: 40)', fromZero),
      numberOption(
        '--top-p <p>',
        'sample from the smallest set of tokens whose probabilities sum to p; 1: all (default: 0.95)',
        share,
      ),
      numberOption('-s, --seed <n>', 'random seed; -1: random (default: -1)', orMinusOne),
    ],
    advanced: [
      numberOption(
        '--min-p <p>',
        'drop tokens less probable than p times the most probable one; 0: none (default: 0.05)',
        shareOrZero,
      ),
      ...withAliases(
        numberOption(
          '--repetition-penalty <x>',
          'divide the positive logits of repeated tokens by x; 1: off (default: 1)',
          positive,
        ),
        '--repeat-penalty <x>',
      ),
      ...withAliases(
        numberOption(
          '--penalty-window <n>',
          'number of recent tokens that penalties apply to; -1: all (default: 64)',
          orMinusOne,
        ),
        '--repeat-last-n <n>',
      ),
      numberOption(
        '--presence-penalty <x>',
        'subtract x once from the logits of tokens that occurred; 0: off (default: 0)',
        any,
      ),
      numberOption(
        '--frequency-penalty <x>',
        'subtract x from the logit of a token for each occurrence; 0: off (default: 0)',
        any,
      ),
    ],
  });
}

export function addSessionOptions(command: Command, load: string): Command {
  return addGroup(command, {
    heading: 'Sessions',
    advanced: [
      flag('--load-session <file>', load),
      flag('--save-session <file>', 'write the session to a file at the end, also after Ctrl-C'),
      flag('--session-key-file <file>', 'secret key: sign saved sessions, and load only those signed with it'),
    ],
  });
}
