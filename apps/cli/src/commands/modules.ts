/** The modules of the commands, in the order of the help: a call loads only its own. */
import type { Command } from 'commander';
import type { CommandHost } from './command-host.js';

export type Register = (program: Command, host: CommandHost) => void;

const models = async (): Promise<Register> => (await import('./models.js')).registerModels;

/** By name; the three commands for downloaded models have one module. */
export const commandModules: Readonly<Record<string, () => Promise<Register>>> = {
  run: async () => (await import('./run.js')).registerRun,
  chat: async () => (await import('./chat.js')).registerChat,
  serve: async () => (await import('./serve.js')).registerServe,
  batch: async () => (await import('./batch/command.js')).registerBatch,
  worker: async () => (await import('./worker/command.js')).registerWorker,
  route: async () => (await import('./route.js')).registerRoute,
  tokenize: async () => (await import('./tokenize.js')).registerTokenize,
  detokenize: async () => (await import('./detokenize.js')).registerDetokenize,
  logits: async () => (await import('./logits.js')).registerLogits,
  inspect: async () => (await import('./inspect.js')).registerInspect,
  convert: async () => (await import('./convert.js')).registerConvert,
  embed: async () => (await import('./embed/command.js')).registerEmbed,
  rerank: async () => (await import('./rerank.js')).registerRerank,
  calibrate: async () => (await import('./calibrate.js')).registerCalibrate,
  eval: async () => (await import('./eval/command.js')).registerEval,
  tune: async () => (await import('./tune.js')).registerTune,
  'explain-attention': async () => (await import('./explain-attention.js')).registerExplainAttention,
  pull: models,
  list: models,
  rm: models,
};
