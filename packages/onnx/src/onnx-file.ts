/** Opens an ONNX file: reads its graph, but not its weights. */
import { readBytes, type ByteSource } from '@winnow/bytes';
import { decodeNode, decodeValueName, type OnnxNode } from './graph.js';
import { maxGraphEntries, maxNodeBytes } from './limits.js';
import { readTensorProto, type OnnxTensor, type OpenExternal } from './tensor-proto.js';
import { wireError, wireFields, type WireField } from './wire.js';
import { checkOptions, type OptionNames } from '@winnow/tensor';

export interface OpenOnnxOptions {
  /**
   * Opens a file of external data by its name next to the model. Each is opened once. Default: external data is an
   * error.
   */
  readonly openExternal?: OpenExternal;
  readonly signal?: AbortSignal;
}

const openOnnxNames: OptionNames<OpenOnnxOptions> = { openExternal: true, signal: true };

/** An open ONNX file. */
export interface OnnxFile {
  readonly name: string;
  /** Initializers by name. */
  readonly initializers: ReadonlyMap<string, OnnxTensor>;
  /** In file order, which is the order of execution. */
  readonly nodes: readonly OnnxNode[];
  /** Names of the inputs that are not initializers. */
  readonly inputs: readonly string[];
  readonly outputs: readonly string[];
  readonly producer: string;
  /** Closes the file and those of external data. */
  close(): Promise<void>;
}

/**
 * Reads the graph of an ONNX file and locates its initializers. Takes ownership of `source`, which stays open for the
 * weights.
 * @throws {FormatError} with the byte offset, for a file that is malformed or not an ONNX model
 * @throws {IoError} when reading fails
 */
export async function openOnnx(source: ByteSource, options: OpenOnnxOptions = {}): Promise<OnnxFile> {
  const { signal, openExternal } = options;
  const opened = new Map<string, Promise<ByteSource>>();
  const openOnce: OpenExternal | undefined =
    openExternal &&
    ((location) => {
      const known = opened.get(location) ?? openExternal(location);
      opened.set(location, known);
      return known;
    });
  const close = async (): Promise<void> => {
    for (const file of opened.values()) await file.then((external) => external.close()).catch(() => undefined);
    await source.close();
  };
  try {
    checkOptions(options, openOnnxNames);
    let graph: WireField | undefined;
    let producer = '';
    for await (const field of wireFields(source, 0, source.sizeBytes, 'model', signal)) {
      if (field.number === 7 && field.wireType === 2) graph = field;
      if (field.number === 2 && field.wireType === 2)
        producer = new TextDecoder().decode(await small(source, field, signal));
    }
    if (graph === undefined) throw wireError(source.name, 0, 'graph', 'missing: this is not an ONNX model');
    return { name: source.name, producer, ...(await readGraph(source, graph, openOnce, signal)), close };
  } catch (error) {
    await close();
    throw error;
  }
}

async function small(source: ByteSource, { begin, end, number }: WireField, signal?: AbortSignal): Promise<Uint8Array> {
  if (end - begin > maxNodeBytes) {
    throw wireError(
      source.name,
      begin,
      `field ${number}`,
      `expected at most ${maxNodeBytes} bytes, got ${end - begin}`,
    );
  }
  return readBytes(source, begin, end - begin, signal === undefined ? {} : { signal });
}

async function readGraph(
  source: ByteSource,
  graph: WireField,
  openExternal: OpenExternal | undefined,
  signal?: AbortSignal,
): Promise<Pick<OnnxFile, 'initializers' | 'nodes' | 'inputs' | 'outputs'>> {
  const initializers = new Map<string, OnnxTensor>();
  const nodes: OnnxNode[] = [];
  const inputs: string[] = [];
  const outputs: string[] = [];
  let numEntries = 0;
  for await (const field of wireFields(source, graph.begin, graph.end, 'graph', signal)) {
    if (++numEntries > maxGraphEntries) {
      throw wireError(source.name, field.begin, 'graph', `expected at most ${maxGraphEntries} entries`);
    }
    if (field.wireType !== 2) continue;
    switch (field.number) {
      case 1:
        nodes.push(decodeNode(source.name, field.begin, await small(source, field, signal)));
        break;
      case 5: {
        const tensor = await readTensorProto(source, field.begin, field.end, openExternal, signal);
        if (tensor === undefined) break;
        if (initializers.has(tensor.name)) {
          throw wireError(source.name, field.begin, tensor.name, 'expected unique initializers, got a duplicate');
        }
        initializers.set(tensor.name, tensor);
        break;
      }
      case 11:
        inputs.push(decodeValueName(source.name, field.begin, await small(source, field, signal)));
        break;
      case 12:
        outputs.push(decodeValueName(source.name, field.begin, await small(source, field, signal)));
        break;
      default:
        break;
    }
  }
  return { initializers, nodes, inputs: inputs.filter((name) => !initializers.has(name)), outputs };
}
