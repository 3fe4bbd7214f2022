/** Flags for loading a model, named like the options of `loadModel` (`errors/names.ts`). llama.cpp's names are aliases. */
import type { Command, Option } from 'commander';
import type { KvDTypes, LoadOptions, SidecarSource, Speculative, WhenFull } from '@winnow/engine';
import { nativeLevels, type NativeLevel } from '@winnow/native';
import type { DType } from '@winnow/tensor';
import { UsageError } from '../errors/errors.js';
import {
  addGroup,
  choiceOption,
  flag,
  listOption,
  numberOption,
  numberRules,
  parsedOption,
  sizeOption,
  withAliases,
} from './builders.js';
import {
  parseIds,
  parseKvDType,
  parseQuantizeType,
  parseSpeculative,
  refuse,
  type NumberRule,
} from './parse-values.js';

/** Flags that select the model, and output flags. */
export interface CommonFlags {
  readonly model?: string;
  readonly json?: boolean;
  readonly quiet?: boolean;
}

/** Attention policies. */
export interface AttentionFlags {
  readonly attention?: string;
  readonly prefill?: string;
  readonly decode?: string;
  readonly policyFile?: string;
}

/** Sparse FFNs, and the memory budget with its weight tiers. */
export interface SparseFlags {
  readonly memory?: number;
  readonly memoryHot?: 'fitting' | 'all';
  readonly memoryWarm?: 'same' | 'q8_0';
  readonly memoryCold?: 'file' | 'q4_0';
  readonly memoryFolder?: string;
  /** The path of a calibration, or one that the command has read. */
  readonly sparsity?: SidecarSource;
  readonly sparsityMaxActive?: number;
  readonly sparsityUse?: 'model' | 'drafts';
  readonly sparsityVerify?: boolean;
}

/** Where and how ops run. */
export interface ExecutionFlags {
  readonly threads?: number;
  readonly activations?: 'f32' | 'int8';
  readonly native?: 'auto' | 'on' | 'off' | NativeLevel;
  readonly backend?: 'wasm' | 'reference';
}

/** Flags for loading a model. */
export interface LoadFlags extends CommonFlags, AttentionFlags, ExecutionFlags, SparseFlags {
  readonly speculative?: Speculative | `draft=${string}`;
  readonly context?: number;
  readonly batchSize?: number;
  /** Of `winnow serve` only; other commands have one session. */
  readonly maxSessions?: number;
  readonly kvCapacity?: number;
  readonly kvWhenFull?: WhenFull;
  readonly kvPrefixSharing?: boolean;
  readonly kvDtype?: DType | KvDTypes;
  readonly kvRotation?: 'none' | 'hadamard';
  readonly kvEviction?: 'oldest' | 'least-attended';
  readonly kvEvictionFirstTokens?: number;
  readonly kvEvictionRecentTokens?: number;
  readonly kvBudget?: number;
  readonly kvOffloadMemory?: number;
  readonly kvOffloadFolder?: string;
  readonly quantize?: LoadOptions['quantize'];
  /** `false`: none, also when there is one beside the model. */
  readonly mmproj?: string | false;
  readonly lora?: readonly string[];
  readonly loraScaled?: readonly string[];
  readonly loraMode?: 'runtime' | 'merge';
  readonly profile?: boolean;
  /** Of `winnow serve` only, whose metrics report them. */
  readonly visitedKeys?: boolean;
}

function modelOption(): Option {
  return flag('-m, --model <model>', 'the model, instead of the MODEL argument');
}

export function addModelOption(command: Command): Command {
  return addGroup(command, { heading: 'Model', advanced: [modelOption()] });
}

export function addOutputOptions(command: Command, json: string, quiet = 'print only errors to stderr'): Command {
  return addGroup(command, {
    heading: 'Output',
    common: [flag('--json', json), flag('-q, --quiet', quiet)],
  });
}

export function textOptions(what: string): Option[] {
  return [
    flag('-p, --prompt <text>', what),
    flag('-f, --file <path>', `file with ${what}, - for stdin; a final newline is dropped`),
  ];
}

/** Token ids instead of text; no special tokens are added. */
export function tokensOption(): Option {
  return parsedOption(
    '--tokens <ids>',
    'the prompt as token ids, such as 1,2,3; nothing is added to them',
    (name, text) => {
      const ids = parseIds(name, text);
      if (ids.length === 0) throw refuse(name, 'token ids such as 1,2,3', text);
      return ids;
    },
  );
}

export function threadsOption(): Option {
  return numberOption('-t, --threads <n>', 'number of threads (default: all hardware threads)', numberRules.count);
}

export function backendOption(): Option {
  return choiceOption('--backend <name>', 'backend that runs the ops', ['wasm', 'reference'], 'wasm');
}

export function activationsOption(): Option {
  return choiceOption(
    '--activations <type>',
    'dtype of activations in GEMMs with quantized weights',
    ['int8', 'f32'],
    'int8',
  );
}

export function nativeOption(): Option {
  const choices = ['auto', 'on', 'off', ...nativeLevels];
  return choiceOption('--native <level>', 'native kernels and their instruction set', choices, 'auto');
}

export function quantizeOption(): Option {
  return parsedOption(
    '--quantize <type>',
    'quantize the weights while loading: q8_0, q4_0, q4_K, q4_K_M, f16, ...',
    parseQuantizeType,
  );
}

export function memoryOption(): Option {
  return sizeOption(
    '--memory <size>',
    'total memory budget, such as 2GB; experts and sparse FFNs that do not fit stay in the file',
  );
}

export function contextOptions(description: string, rule: NumberRule): Option[] {
  return withAliases(numberOption('-c, --context <n>', description, rule), '--ctx-size <n>', '--ctx <n>');
}

export function batchSizeOptions(description: string): Option[] {
  return withAliases(numberOption('-b, --batch-size <n>', description, numberRules.count), '--batch <n>');
}

/** Flags of the KV cache and of the context. */
function addContextOptions(command: Command): Command {
  const { fromZero } = numberRules;
  return addGroup(command, {
    heading: 'Context and KV cache',
    common: [
      ...contextOptions('context length in tokens; 0: as trained, at most 4096', fromZero),
      parsedOption(
        '--kv-dtype <type>',
        'dtype of the KV cache: f32 (default), f16, bf16, q8_0, ...; keys,values for two',
        parseKvDType,
      ),
    ],
    advanced: [
      choiceOption('--kv-rotation <kind>', 'rotate keys before they are quantized', ['none', 'hadamard'], 'none'),
      choiceOption(
        '--kv-eviction <rule>',
        'which tokens --overflow evict drops',
        ['oldest', 'least-attended'],
        'oldest',
      ),
      numberOption(
        '--kv-eviction-first-tokens <n>',
        'number of first tokens that least-attended keeps (default: 4)',
        fromZero,
      ),
      numberOption(
        '--kv-eviction-recent-tokens <n>',
        'number of last tokens that least-attended keeps (default: a quarter of the context)',
        fromZero,
      ),
      sizeOption(
        '--kv-budget <size>',
        "size of the KV cache in the backend's memory, such as 256MB (default: all of it)",
      ),
      sizeOption('--kv-offload-memory <size>', 'memory for pages beyond the budget (default: none)'),
      flag('--kv-offload-folder <folder>', 'folder for temporary files of the remaining pages (default: none)'),
      ...batchSizeOptions('maximum number of prompt tokens per step (default: 64)'),
    ],
  });
}

/** All flags that affect the memory plan. */
export function addPlanOptions(command: Command): Command {
  addContextOptions(command);
  return addGroup(command, {
    heading: 'Weights and memory',
    common: [memoryOption()],
    advanced: [
      quantizeOption(),
      flag('--mmproj <file>', 'image encoder of a GGUF model (default: mmproj*.gguf beside it)'),
      flag('--no-mmproj', 'load no image encoder'),
      listOption('--lora <file>', 'LoRA adapter: a .gguf file or a PEFT folder; may be repeated'),
      listOption('--lora-scaled <file scale>', 'LoRA adapter with a scale; may be repeated'),
      choiceOption(
        '--lora-mode <mode>',
        'compute adapters alongside the weights, or merge them into the weights while loading',
        ['runtime', 'merge'],
        'runtime',
      ),
    ],
  });
}

export function maxActiveOption(): Option {
  const description = 'run a layer dense above this share of active neurons (default: the measured break-even)';
  return numberOption('--sparsity-max-active <share>', description, numberRules.shareOrZero);
}

/** Sparse FFNs and the tiers of weights under `--memory`. */
export function addSparseOptions(command: Command): Command {
  return addGroup(command, {
    heading: 'Sparse FFN and weight tiers',
    common: [flag('--sparsity <file>', 'skip inactive FFN neurons, using a calibration of winnow calibrate')],
    advanced: [
      maxActiveOption(),
      choiceOption(
        '--sparsity-use <which>',
        'what skips neurons: the model, or only drafts of --speculative self=POLICY',
        ['model', 'drafts'],
        'model',
      ),
      flag('--sparsity-verify', 'check all weights against the calibration (default: samples of each tensor)'),
      choiceOption('--memory-hot <which>', 'neurons pinned in the hot tier', ['fitting', 'all'], 'fitting'),
      choiceOption(
        '--memory-warm <type>',
        'encoding of the warm tier, in memory outside the backend',
        ['same', 'q8_0'],
        'same',
      ),
      choiceOption(
        '--memory-cold <source>',
        'cold tier: the model file or a 4-bit copy in memory',
        ['file', 'q4_0'],
        'file',
      ),
      flag('--memory-folder <folder>', "folder for a temporary file of transposed neurons (default: the system's)"),
    ],
  });
}

/** For commands without another way to select policies. */
export function addAttentionOptions(command: Command): Command {
  return addGroup(command, {
    heading: 'Attention',
    common: [
      flag(
        '--attention <policy>',
        'attention policy, such as streaming or sparq:topk=128; auto: as tuned (default: dense)',
      ),
    ],
    advanced: [
      flag('--policy-file <file>', "policy file of --attention auto (default: the model's .policy.json)"),
      flag('--prefill <policy>', 'attention policy of prefill (prompt tokens)'),
      flag('--decode <policy>', 'attention policy of decode (generated tokens)'),
    ],
  });
}

/** For commands that generate. */
export function addSpeculativeOption(command: Command): Command {
  const what = 'draft tokens and verify them in one step: lookup, self=POLICY, draft=MODEL, auto or off (default: off)';
  return addGroup(command, {
    heading: 'Execution',
    advanced: [parsedOption('--speculative <kind>', what, parseSpeculative)],
  });
}

export function addLoadOptions(command: Command): Command {
  addSparseOptions(addPlanOptions(command));
  return addGroup(command, {
    heading: 'Execution',
    common: [threadsOption()],
    advanced: [activationsOption(), nativeOption(), backendOption()],
  });
}

/** The model from the argument or the flag. */
export function chooseModel(argument: string | undefined, flagValue: string | undefined): string | undefined {
  if (argument !== undefined && flagValue !== undefined) {
    throw new UsageError(`--model: expected one model, got '${argument}' and '${flagValue}'`);
  }
  return argument ?? flagValue;
}
