/** The contract of an architecture: maps the settings and tensors of a file to a description, which builds programs. */
import type { ActivationKind, Program } from '@winnow/ops';
import type { Fields } from '../file/fields.js';
import type { RequestedStore, Weight } from '../file/weights.js';
import type { DecoderConfig } from './config.js';
import type { DecoderProgramOptions } from './decoder-program.js';
import type { EmbeddingProgramOptions, Pooling } from './embedding-program.js';

/** An opened model file: its settings and its tensors. */
export interface ModelFile {
  readonly format: 'gguf' | 'safetensors';
  /** GGUF metadata by key, or the entries of config.json. */
  readonly fields: Fields;
  readonly store: RequestedStore;
}

/** Options of a vision program, which looks at one image, or one tile of an image, per step. */
export interface VisionProgramOptions {
  /** Whether the row of the image token, which a decoder adds, is subtracted from the rows. Default false. */
  readonly tokenRow?: boolean;
}

/** How images are written in the text of prompts. */
export interface ImageMarks {
  /** The placeholder of an image. */
  readonly marker: string;
  /** Written before and after the rows of the image. */
  readonly before: string;
  readonly after: string;
}

/** Width and height in pixels. */
export interface ImageSize {
  readonly width: number;
  readonly height: number;
}

/** The rows of an image as a grid, row by row. */
export interface RowGrid {
  readonly rows: number;
  readonly columns: number;
}

/** Sizes of a step of a vision program: the values of its symbols T, B and R. */
export interface ImageStep {
  readonly numTokens: number;
  readonly numSequences: number;
  readonly numRows: number;
  /** Contents of further buffers of the program, by name. Default: none. */
  readonly tables?: ReadonlyMap<string, Float32Array>;
}

/**
 * How the rows of a grid of tiles are joined to lines, as by `pack_image_features` of transformers: rows of padding are dropped, each
 * line ends with the program's output `newline` `[1, dim]`, and the rows of the whole image come first.
 */
export interface VisionGrid {
  /** An image with more than 1.1² times the rows of this many tiles is downsampled to them. Default: no limit. */
  readonly maxTiles?: number;
}

/**
 * The image encoder of a model. Its program reads the patches from the buffer `visionPatchesName`, `[1 + patches, 3 F P P]` f32
 * with a first row of zeros; `fill` writes its scalar slots. The output `embeddings` is `[numRows, dim]`.
 */
export interface VisionPart {
  readonly config: DecoderConfig;
  /** The settings of the encoder under their names in config.json, with defaults. */
  readonly fields: Fields;
  /** Width and height in pixels; with `gridOf`, both are multiples of it. */
  readonly imageSize: number;
  /** Width and height of a patch in pixels. */
  readonly patchSize: number;
  /** Number of frames per patch (F): encoders of videos get the pixels of an image as often. */
  readonly numFrames: number;
  /** Number of rows per image or tile; with `gridOf`, the maximum. */
  readonly numRows: number;
  /** The rows of an image, in encoders that accept any size. Default: all images have the same size. */
  readonly gridOf?: (size: ImageSize) => RowGrid;
  /** Number of values per row. */
  readonly dim: number;
  /** Maximum number of tokens per step. */
  readonly numTokens: number;
  /** Constants of the program, as in a description. Default: none. */
  readonly constants?: ReadonlyMap<string, Float32Array>;
  /** How an image of several tiles is written in the prompt. Default: as its rows only. */
  readonly frame?: 'tiles';
  /** Default: the rows of tiles are not joined. */
  readonly grid?: VisionGrid;
  /** How an image is written in the text of a prompt. Default: as the text of the image token. */
  readonly marks?: ImageMarks;
  /** The settings of the image processor, if the file of the encoder has them. */
  readonly processor?: { readonly source: string; readonly settings: Readonly<Record<string, unknown>> };
  /** Whether attention is bidirectional within an image, so that the decoder must process all of its rows in one step. */
  readonly isBidirectional: boolean;
  buildProgram(options?: VisionProgramOptions): Program;
  /** Fills the scalar slots for an image of this size. */
  fill(slot: (name: string) => Int32Array, size: ImageSize): ImageStep;
}

/** Everything about an embedding model except the values of its weights. */
export interface EmbedderDescription {
  readonly config: DecoderConfig;
  /** A separate map, which `quantizeWeights` and `addAdapters` modify before programs are built. */
  readonly weights: Map<string, Weight>;
  /** Small f32 tables by name that the programs need and no file contains; written after loading. */
  readonly constants: ReadonlyMap<string, Float32Array>;
  /** The only pooling of token vectors that the model supports. Default: as the files declare. */
  readonly pooling?: Pooling;
  /** Texts are padded to this length with a token that the model attends to. Default: no padding. */
  readonly padding?: { readonly length: number; readonly id: number };
  /** Default: the model takes no images. */
  readonly vision?: VisionPart;
  /** Builds a program for steps of whole texts, of up to `maxTokens` tokens in total. */
  buildEmbeddingProgram(options: EmbeddingProgramOptions): Program;
}

/** Everything about a generative model except the values of its weights. */
export interface ModelDescription extends EmbedderDescription {
  /** Builds a program for steps of up to `maxTokens` tokens. */
  buildProgram(options: DecoderProgramOptions): Program;
}

/** A model that scores how well a document answers a query. Its embedding program writes `scores` `[B, numLabels]`. */
export interface RerankerDescription extends EmbedderDescription {
  readonly pooling: Pooling;
  /** `pair`: query and document form one input with one label. `judge`: a prompt asks for yes or no, which are the labels. */
  readonly input: 'pair' | 'judge';
  readonly numLabels: number;
  /** Number of segment types; 0 for a model without segments. */
  readonly numTypes: number;
}

/** The classification head of cross-encoders of an architecture. */
export interface ClassificationHead {
  /** The model's class in transformers, which conversion writes to config.json. */
  readonly hubClass: string;
  /** Prefix of the encoder's tensors in Hugging Face checkpoints. */
  readonly hubPrefix: string;
  /** Names of the layers in Hugging Face checkpoints; `cls`, `cls.norm` and `cls.output` in programs and GGUF files. */
  readonly dense: string;
  readonly norm?: string;
  readonly output: string;
  /** Setting of config.json for the bias of the dense layer. Default: it has a bias. */
  readonly biasSetting?: string;
  /** How the token vectors are pooled. */
  pooling(file: ModelFile): Pooling;
  /** The activation after the dense layer. */
  activation(file: ModelFile, config: DecoderConfig): ActivationKind | 'tanh';
}

/** Facts about an architecture. */
interface ArchitectureFacts {
  readonly name: string;
  /** Published models of this architecture, for the documentation. */
  readonly models?: string;
  /** Limitations, and differences from other implementations, one sentence each, for the documentation. */
  readonly limits?: readonly string[];
  /** Values of `general.architecture` in GGUF files. */
  readonly ggufNames: readonly string[];
  /** Values of `model_type` in config.json; conversion writes the first. */
  readonly hubNames: readonly string[];
  /** Tells apart architectures that share a name: whether a file with one of these names has this one. Default: always. */
  readonly accepts?: (file: ModelFile) => boolean;
  /** The model's class in Hugging Face's transformers, which conversion writes to config.json. */
  readonly hubClass: string;
  /** The name of the pre-tokenizer in llama.cpp's converter, where several names have the same rules. */
  readonly preTokenizer?: string;
}

/** An architecture with causal attention, which generates and can also embed. */
export interface DecoderArchitecture extends ArchitectureFacts {
  readonly isEncoder?: false;
  /** @throws {FormatError} when a setting or tensor is missing or invalid */
  describe(file: ModelFile): Promise<ModelDescription>;
}

/** An architecture with bidirectional attention, which only embeds. */
export interface EncoderArchitecture extends ArchitectureFacts {
  readonly isEncoder: true;
  /** Default: there are no cross-encoders of this architecture. */
  readonly head?: ClassificationHead;
  /** @throws {FormatError} when a setting or tensor is missing or invalid */
  describe(file: ModelFile): Promise<EmbedderDescription>;
}

/** One architecture, described by one file of this package. */
export type Architecture = DecoderArchitecture | EncoderArchitecture;
