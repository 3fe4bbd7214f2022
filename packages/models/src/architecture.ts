/** The contract of an architecture: from the settings and tensors of a file to a description, and on to programs. */
import type { Program } from '@winnow/ops';
import type { DecoderConfig } from './decoder-config.js';
import type { DecoderProgramOptions } from './decoder-program.js';
import type { EmbeddingProgramOptions } from './embedding-program.js';
import type { Fields } from './fields.js';
import type { RequestedStore, Weight } from './weights.js';

/** An opened model file: its settings and its tensors. */
export interface ModelFile {
  readonly format: 'gguf' | 'safetensors';
  /** GGUF metadata by key, or the entries of config.json. */
  readonly fields: Fields;
  readonly store: RequestedStore;
}

/** Everything about a model that can embed but its weights' values. */
export interface EmbedderDescription {
  readonly config: DecoderConfig;
  /** A map of its own, which `quantizeWeights` and `addAdapter` change before programs are built. */
  readonly weights: Map<string, Weight>;
  /** Small tables that the programs need and no file holds, by name: f32, filled in after loading. */
  readonly constants: ReadonlyMap<string, Float32Array>;
  /** A program for steps of whole texts of up to `maxTokens` tokens together. */
  buildEmbeddingProgram(options: EmbeddingProgramOptions): Program;
}

/** Everything about a model that generates but its weights' values. */
export interface ModelDescription extends EmbedderDescription {
  /** A program for steps of up to `maxTokens` tokens. */
  buildProgram(options: DecoderProgramOptions): Program;
}

/** What is known of an architecture. */
interface ArchitectureFacts {
  readonly name: string;
  /** The published models that have it, for the documentation. */
  readonly models?: string;
  /** What is refused or differs from other implementations, one sentence each, for the documentation. */
  readonly limits?: readonly string[];
  /** Values of `general.architecture` in GGUF files. */
  readonly ggufNames: readonly string[];
  /** Values of `model_type` in config.json. */
  readonly hubNames: readonly string[];
}

/** Tokens see those before them: such a model generates, and embeds. */
export interface DecoderArchitecture extends ArchitectureFacts {
  readonly isEncoder?: false;
  /** @throws {FormatError} when a setting or tensor is missing or makes no sense */
  describe(file: ModelFile): Promise<ModelDescription>;
}

/** Tokens see the whole text: such a model embeds. */
export interface EncoderArchitecture extends ArchitectureFacts {
  readonly isEncoder: true;
  /** @throws {FormatError} when a setting or tensor is missing or makes no sense */
  describe(file: ModelFile): Promise<EmbedderDescription>;
}

/** One architecture; one file in this package. */
export type Architecture = DecoderArchitecture | EncoderArchitecture;
