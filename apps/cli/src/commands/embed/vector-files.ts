/** Files of vectors, which are written row by row: one, or some with a maximum number of rows each. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { ByteSink } from '@winnow/bytes';
import { fileSink, makeFolder } from '@winnow/bytes/node';
import type { JobError } from '@winnow/jobs';
import { encodeNpyRow, npyHeader } from '../../terminal/npy.js';
import { shortestFloat } from '../../terminal/format.js';

export type VectorFormat = 'npy' | 'jsonl' | 'text';

export interface VectorFilesOptions {
  readonly format: VectorFormat;
  readonly numTexts: number;
  readonly dimensions: number;
  /** Then the output is a folder. Default: one file. */
  readonly rowsPerFile?: number;
}

export interface VectorRow {
  /** Of the input, from 1. */
  readonly line: number;
  readonly text: string;
  /** NaN if the text failed. */
  readonly vector: Float32Array;
  readonly error: Pick<JobError, 'code' | 'message'> | undefined;
}

const suffixes: Readonly<Record<VectorFormat, string>> = { npy: 'npy', jsonl: 'jsonl', text: 'txt' };

/** Rows are buffered up to this size. */
const bufferBytes = 1024 * 1024;

/** Files appear when they are complete. Errors of texts are in a file beside them; without errors there is none. */
export class VectorFiles {
  readonly errorsPath: string;
  readonly #output: string;
  readonly #options: VectorFilesOptions;
  #sink: BufferedSink | undefined;
  #errors: BufferedSink | undefined;
  #numRows = 0;

  constructor(output: string, options: VectorFilesOptions) {
    this.errorsPath = `${output.replace(/[/\\]+$/, '')}.errors.jsonl`;
    this.#output = output;
    this.#options = options;
  }

  async write(row: VectorRow): Promise<void> {
    const { rowsPerFile = Infinity } = this.#options;
    if (this.#numRows % rowsPerFile === 0) await this.#next();
    this.#numRows++;
    await this.#sink?.write(encodeRow(this.#options.format, row));
    if (row.error === undefined) return;
    this.#errors ??= new BufferedSink(await fileSink(this.errorsPath));
    const { code, message } = row.error;
    await this.#errors.write(Buffer.from(`${JSON.stringify({ line: row.line, error: { code, message } })}\n`));
  }

  async close(): Promise<void> {
    if (this.#numRows === 0) await this.#next();
    await this.#sink?.close();
    if (this.#errors === undefined) await rm(this.errorsPath, { force: true });
    else await this.#errors.close();
  }

  async abort(): Promise<void> {
    await this.#sink?.abort();
    await this.#errors?.abort();
  }

  async #next(): Promise<void> {
    const { format, numTexts, dimensions, rowsPerFile } = this.#options;
    await this.#sink?.close();
    if (rowsPerFile !== undefined) await makeFolder(this.#output);
    const number = String(this.#numRows / (rowsPerFile ?? 1)).padStart(5, '0');
    const path = rowsPerFile === undefined ? this.#output : join(this.#output, `${number}.${suffixes[format]}`);
    this.#sink = new BufferedSink(await fileSink(path));
    const numRows = Math.min(rowsPerFile ?? Infinity, numTexts - this.#numRows);
    if (format === 'npy') await this.#sink.write(npyHeader(numRows, dimensions));
  }
}

function encodeRow(format: VectorFormat, { line, text, vector, error }: VectorRow): Uint8Array {
  if (format === 'npy') return encodeNpyRow(vector);
  const numbers = Array.from(vector, shortestFloat);
  if (format === 'text') return Buffer.from(`${numbers.join(' ')}\n`);
  const embedding = error === undefined ? `[${numbers.join(',')}]` : 'null';
  return Buffer.from(`{"line":${line},"text":${JSON.stringify(text)},"embedding":${embedding}}\n`);
}

class BufferedSink {
  readonly #sink: ByteSink;
  #parts: Uint8Array[] = [];
  #numBytes = 0;

  constructor(sink: ByteSink) {
    this.#sink = sink;
  }

  async write(bytes: Uint8Array): Promise<void> {
    this.#parts.push(bytes);
    this.#numBytes += bytes.byteLength;
    if (this.#numBytes >= bufferBytes) await this.#flush();
  }

  async close(): Promise<void> {
    await this.#flush();
    await this.#sink.close();
  }

  abort(): Promise<void> {
    return this.#sink.abort();
  }

  async #flush(): Promise<void> {
    const bytes = Buffer.concat(this.#parts);
    [this.#parts, this.#numBytes] = [[], 0];
    await this.#sink.write(bytes);
  }
}
