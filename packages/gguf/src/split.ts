/** Models split over several files, as llama.cpp's `gguf-split` writes them: `NAME-00001-of-00003.gguf`. */
import type { ByteSource } from '@winnow/bytes';
import { ArgumentError, checkOptions, FormatError } from '@winnow/tensor';
import { openGgufNames, openPart, type GgufFile, type GgufTensor, type OpenGgufOptions } from './gguf-file.js';
import { defaultGgufLimits } from './limits.js';
import { tensorField } from './parse-tensors.js';

/** The parsed name of a part. */
export interface GgufSplitName {
  /** Everything before `-00001-of-00003.gguf`. */
  readonly prefix: string;
  /** Zero-based. */
  readonly partIndex: number;
  readonly numParts: number;
}

/** Parses the name of a part; `undefined` for the name of a whole model, or a part number out of range. */
export function parseGgufSplitName(name: string): GgufSplitName | undefined {
  const match = /^(.*)-(\d{5})-of-(\d{5})\.gguf$/s.exec(name);
  if (match === null) return undefined;
  const partIndex = Number(match[2]) - 1;
  const numParts = Number(match[3]);
  return partIndex < 0 || partIndex >= numParts ? undefined : { prefix: match[1] as string, partIndex, numParts };
}

/** The name of a part: the inverse of `parseGgufSplitName`. */
export function ggufSplitName({ prefix, partIndex, numParts }: GgufSplitName): string {
  const digits = (value: number): string => String(value).padStart(5, '0');
  return `${prefix}-${digits(partIndex + 1)}-of-${digits(numParts)}.gguf`;
}

/**
 * Opens all parts of a split model, given the name of any of them. `openSource` is called with the name of each part,
 * sequentially. Metadata, version, alignment and `dataOffset` are those of the first part. When opening fails, all
 * parts opened so far are closed.
 * @throws {ArgumentError} when `name` is not the name of a part
 * @throws {FormatError} when a part is malformed, belongs to another model, or a tensor is missing or duplicated
 */
export async function openSplitGguf(
  name: string,
  openSource: (name: string) => Promise<ByteSource>,
  options: OpenGgufOptions = {},
): Promise<GgufFile> {
  checkOptions(options, openGgufNames);
  const split = parseGgufSplitName(name);
  if (split === undefined) {
    throw new ArgumentError({ argument: 'name', expected: 'a name like model-00001-of-00003.gguf', actual: name });
  }
  const { numParts } = split;
  const sources: ByteSource[] = [];
  const files: GgufFile[] = [];
  const close = async (): Promise<void> => {
    await Promise.all(sources.map((source) => source.close()));
  };
  try {
    const tensors = new Map<string, GgufTensor>();
    for (let partIndex = 0; partIndex < numParts; partIndex++) {
      options.signal?.throwIfAborted();
      const source = await openSource(ggufSplitName({ ...split, partIndex }));
      sources.push(source);
      const file = await openPart(source, partIndex, options);
      files.push(file);
      checkPart(file, partIndex, numParts, files[0] as GgufFile);
      for (const tensor of file.tensors.values()) {
        const other = tensors.get(tensor.name);
        if (other !== undefined) {
          throw new FormatError({
            source: file.name,
            field: tensorField(tensor.name),
            message: `expected unique tensor names, got a duplicate of one in part ${other.partIndex + 1}`,
          });
        }
        tensors.set(tensor.name, tensor);
      }
      const maxTensors = options.limits?.maxTensors ?? defaultGgufLimits.maxTensors;
      if (tensors.size > maxTensors) {
        throw new FormatError({
          source: file.name,
          field: 'numTensors',
          message: `expected at most ${maxTensors} (maxTensors) in all parts, got ${tensors.size} so far`,
        });
      }
    }
    const [first] = files as [GgufFile];
    const total = first.metadata.getInteger('split.tensors.count', tensors.size);
    if (total !== tensors.size) {
      throw first.metadata.error(
        'split.tensors.count',
        `expected ${tensors.size}, the number of tensors in all parts, got ${total}`,
      );
    }
    return { ...first, tensors, parts: files.flatMap(({ parts }) => parts), close };
  } catch (error) {
    await close().catch(() => undefined);
    throw error;
  }
}

function checkPart({ metadata }: GgufFile, partIndex: number, numParts: number, first: GgufFile): void {
  // A model of a single part may omit the keys.
  const count = numParts === 1 ? metadata.getInteger('split.count', 1) : metadata.getInteger('split.count');
  const no = numParts === 1 ? metadata.getInteger('split.no', 0) : metadata.getInteger('split.no');
  // gguf-split writes 0 for a model that was not split
  if (count !== numParts && !(numParts === 1 && count === 0)) {
    throw metadata.error('split.count', `expected ${numParts} as in the file name, got ${count}`);
  }
  if (no !== partIndex) throw metadata.error('split.no', `expected ${partIndex} as in the file name, got ${no}`);
  const total = metadata.getInteger('split.tensors.count', undefined);
  const expected = first.metadata.getInteger('split.tensors.count', undefined);
  if (total !== expected) {
    throw metadata.error('split.tensors.count', `expected ${expected} as in the first part, got ${total}`);
  }
}
