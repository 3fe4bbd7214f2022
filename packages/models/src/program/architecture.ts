/** The contract of an architecture: maps the settings and tensors of a file to a description, which builds programs. */
import type { Program } from '@winnow/ops';
import type { Fields } from '../file/fields.js';
import type { RequestedStore, Weight } from '../file/weights.js';
import type { DecoderConfig } from './config.js';
import type { DecoderProgramOptions } from './decoder-program.js';
import type { EmbeddingProgramOptions } from './embedding-program.js';

/** An opened model file: its settings and its tensors. */
export interface ModelFile {
  readonly format: 'gguf' | 'safetensors';
  /** GGUF metadata by key, or the entries of config.json. */
  readonly fields: Fields;
  readonly store: RequestedStore;
}

/** Everything about an embedding model except the values of its weights. */
export interface EmbedderDescription {
  readonly config: DecoderConfig;
  /** A separate map, which `quantizeWeights` and `addAdapters` modify before programs are built. */
  readonly weights: Map<string, Weight>;
  /** Small f32 tables by name that the programs need but no file contains; written after loading. */
  readonly constants: ReadonlyMap<string, Float32Array>;
  /** Builds a program for steps of whole texts with up to `maxTokens` tokens in total. */
  buildEmbeddingProgram(options: EmbeddingProgramOptions): Program;
}

/** Everything about a generative model except the values of its weights. */
export interface ModelDescription extends EmbedderDescription {
  /** Builds a program for steps of up to `maxTokens` tokens. */
  buildProgram(options: DecoderProgramOptions): Program;
}

/** Facts about an architecture. */
interface ArchitectureFacts {
  readonly name: string;
  /** Published models of this architecture, for the documentation. */
  readonly models?: string;
  /** Limitations and differences from other implementations, one sentence each, for the documentation. */
  readonly limits?: readonly string[];
  /** Values of `general.architecture` in GGUF files. */
  readonly ggufNames: readonly string[];
  /** Values of `model_type` in config.json; conversion writes the first. */
  readonly hubNames: readonly string[];
  /** The model's class in Hugging Face's transformers, which conversion writes to config.json. */
  readonly hubClass: string;
  /** The name that llama.cpp's converter gives to the pre-tokenizer, where several names have the same rules. */
  readonly preTokenizer?: string;
}

/** Causal attention: such a model generates, and can embed. */
export interface DecoderArchitecture extends ArchitectureFacts {
  readonly isEncoder?: false;
  /** @throws {FormatError} when a setting or tensor is missing or invalid */
  describe(file: ModelFile): Promise<ModelDescription>;
}

/** Bidirectional attention: such a model only embeds. */
export interface EncoderArchitecture extends ArchitectureFacts {
  readonly isEncoder: true;
  /** @throws {FormatError} when a setting or tensor is missing or invalid */
  describe(file: ModelFile): Promise<EmbedderDescription>;
}

/** One architecture; one file in this package. */
export type Architecture = DecoderArchitecture | EncoderArchitecture;
