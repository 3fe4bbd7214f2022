/** The contract of an architecture: from the settings and tensors of a file to a description, and on to programs. */
import type { TensorStore } from '@winnow/bytes';
import type { Program } from '@winnow/ops';
import type { DecoderConfig } from './decoder-config.js';
import type { DecoderProgramOptions } from './decoder-program.js';
import type { Fields } from './fields.js';
import type { Weight } from './weights.js';

/** An opened model file: its settings and its tensors. */
export interface ModelFile {
  readonly format: 'gguf' | 'safetensors';
  /** GGUF metadata by key, or the entries of config.json. */
  readonly fields: Fields;
  readonly store: TensorStore;
}

/** Everything about a model but its weights' values. */
export interface ModelDescription {
  readonly config: DecoderConfig;
  readonly weights: ReadonlyMap<string, Weight>;
  /** Small tables that the programs need and no file holds, by name: f32, filled in after loading. */
  readonly constants: ReadonlyMap<string, Float32Array>;
  /** A program for steps of up to `maxTokens` tokens. */
  buildProgram(options: DecoderProgramOptions): Program;
}

/** One architecture; one file in this package. */
export interface Architecture {
  readonly name: string;
  /** The published models that have it, for the documentation. */
  readonly models?: string;
  /** What is refused or differs from other implementations, one sentence each, for the documentation. */
  readonly limits?: readonly string[];
  /** Values of `general.architecture` in GGUF files. */
  readonly ggufNames: readonly string[];
  /** Values of `model_type` in config.json. */
  readonly hubNames: readonly string[];
  /** @throws {FormatError} when a setting or tensor is missing or makes no sense */
  describe(file: ModelFile): Promise<ModelDescription>;
}
