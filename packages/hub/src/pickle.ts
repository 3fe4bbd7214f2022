/**
 * Reads the pickle of a PyTorch state dict as plain data (protocol 2, https://docs.python.org/3/library/pickletools.html). Names of
 * functions and classes stay names and calls stay records: nothing is imported, constructed or executed.
 */
import { FormatError } from '@winnow/tensor';

/** `module name` of a function or class. */
export class PickledName {
  readonly name: string;
  constructor(name: string) {
    this.name = name;
  }
}

/** A call that unpickling in Python would execute. */
export class PickledCall {
  readonly name: string;
  readonly args: readonly PickleValue[];
  constructor(name: string, args: readonly PickleValue[]) {
    this.name = name;
    this.args = args;
  }
}

/** A reference to something outside of the pickle. */
export class PickledReference {
  readonly id: PickleValue;
  constructor(id: PickleValue) {
    this.id = id;
  }
}

/** Tuples and lists are arrays. */
export type PickleValue =
  | null
  | boolean
  | number
  | string
  | PickledName
  | PickledCall
  | PickledReference
  | PickleValue[]
  | Map<PickleValue, PickleValue>;

/** @throws {FormatError} for an opcode that state dicts do not have, and for one whose operands are missing */
export function readPickle(bytes: Uint8Array, source: string): PickleValue {
  return new PickleReader(bytes, source).read();
}

class PickleReader {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  readonly #source: string;
  readonly #stack: PickleValue[] = [];
  /** Heights of the stack at its marks. */
  readonly #marks: number[] = [];
  readonly #memo = new Map<number, PickleValue>();
  #at = 0;

  constructor(bytes: Uint8Array, source: string) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#source = source;
  }

  read(): PickleValue {
    for (;;) {
      const code = this.#number(1);
      if (code === 0x2e) return this.#pop(); // STOP
      const handle = handlers[code];
      if (handle === undefined)
        throw this.#refusal(`expected an opcode of a state dict, got 0x${code.toString(16)}`, 1);
      handle(this.#machine);
    }
  }

  readonly #machine: Machine = {
    number: (numBytes) => this.#number(numBytes),
    integer: (numBytes) => this.#integer(numBytes),
    double: () => this.#view.getFloat64(this.#take(8), false),
    text: (numBytes) => this.#text(numBytes),
    line: () => this.#line(),
    push: (value) => this.#stack.push(value),
    pop: () => this.#pop(),
    top: () => this.#top(),
    popMany: (count) => Array.from({ length: count }, () => this.#pop()).reverse(),
    mark: () => this.#marks.push(this.#stack.length),
    popMarked: () => this.#popMarked(),
    put: (index) => this.#memo.set(index, this.#top()),
    get: (index) => this.#get(index),
    refusal: (message) => this.#refusal(message),
  };

  #take(numBytes: number): number {
    const begin = this.#at;
    if (begin + numBytes > this.#bytes.length) throw this.#refusal('expected more bytes, got the end of the pickle');
    this.#at += numBytes;
    return begin;
  }

  #number(numBytes: 1 | 2 | 4): number {
    const begin = this.#take(numBytes);
    if (numBytes === 1) return this.#view.getUint8(begin);
    return numBytes === 2 ? this.#view.getUint16(begin, true) : this.#view.getUint32(begin, true);
  }

  /** A signed integer in two's complement. */
  #integer(numBytes: number): number {
    if (numBytes > 8) throw this.#refusal(`expected an integer of at most 8 bytes, got ${numBytes}`);
    const begin = this.#take(numBytes);
    let value = 0n;
    for (let i = 0; i < numBytes; i++) value |= BigInt(this.#bytes[begin + i] as number) << BigInt(8 * i);
    return Number(BigInt.asIntN(8 * numBytes, value));
  }

  #text(numBytes: number): string {
    const begin = this.#take(numBytes);
    return new TextDecoder().decode(this.#bytes.subarray(begin, begin + numBytes));
  }

  #line(): string {
    const end = this.#bytes.indexOf(0x0a, this.#at);
    if (end < 0) throw this.#refusal('expected a line, got the end of the pickle');
    return this.#text(end + 1 - this.#at).slice(0, -1);
  }

  #pop(): PickleValue {
    const value = this.#top();
    this.#stack.pop();
    return value;
  }

  #top(): PickleValue {
    if (this.#stack.length <= (this.#marks.at(-1) ?? 0)) throw this.#refusal('expected an operand, got an empty stack');
    return this.#stack.at(-1) as PickleValue;
  }

  #popMarked(): PickleValue[] {
    const height = this.#marks.pop();
    if (height === undefined) throw this.#refusal('expected a mark, got none');
    return this.#stack.splice(height);
  }

  #get(index: number): PickleValue {
    const value = this.#memo.get(index);
    if (value === undefined) throw this.#refusal(`expected a value in the memo, got none at ${index}`);
    return value;
  }

  #refusal(message: string, back = 0): FormatError {
    return new FormatError({ source: this.#source, byteOffset: this.#at - back, field: 'data.pkl', message });
  }
}

/** The state that opcodes operate on. */
interface Machine {
  number(numBytes: 1 | 2 | 4): number;
  integer(numBytes: number): number;
  double(): number;
  text(numBytes: number): string;
  line(): string;
  push(value: PickleValue): void;
  pop(): PickleValue;
  /** The last value, which stays. */
  top(): PickleValue;
  popMany(count: number): PickleValue[];
  mark(): void;
  popMarked(): PickleValue[];
  put(index: number): void;
  get(index: number): PickleValue;
  refusal(message: string): FormatError;
}

/** The class of state dicts, which is read as a map. */
const orderedDict = 'collections OrderedDict';

function call(machine: Machine): void {
  const args = machine.pop();
  const target = machine.pop();
  if (!(target instanceof PickledName) || !Array.isArray(args))
    throw machine.refusal('expected a call of a named function');
  machine.push(target.name === orderedDict && args.length === 0 ? new Map() : new PickledCall(target.name, args));
}

function setItems(machine: Machine, items: readonly PickleValue[]): void {
  const map = machine.top();
  if (!(map instanceof Map) || items.length % 2 !== 0) throw machine.refusal('expected keys and values for a dict');
  for (let i = 0; i < items.length; i += 2) map.set(items[i] as PickleValue, items[i + 1] as PickleValue);
}

function append(machine: Machine, items: readonly PickleValue[]): void {
  const list = machine.top();
  if (!Array.isArray(list)) throw machine.refusal('expected values for a list');
  for (const item of items) list.push(item);
}

function checkProtocol(machine: Machine): void {
  const protocol = machine.number(1);
  if (protocol !== 2) throw machine.refusal(`expected protocol 2, as torch.save writes it, got ${protocol}`);
}

/** The attributes of an object, such as the version of a state dict, are left out. */
function dropState(machine: Machine): void {
  machine.pop();
  if (!(machine.top() instanceof Map)) throw machine.refusal('expected attributes of a state dict');
}

/** Handlers by opcode. */
const handlers: Readonly<Record<number, (machine: Machine) => void>> = {
  0x80: checkProtocol, // PROTO
  0x63: (m) => m.push(new PickledName(`${m.line()} ${m.line()}`)), // GLOBAL
  0x52: call, // REDUCE
  0x51: (m) => m.push(new PickledReference(m.pop())), // BINPERSID
  0x62: dropState, // BUILD
  0x28: (m) => m.mark(), // MARK
  0x4e: (m) => m.push(null), // NONE
  0x88: (m) => m.push(true), // NEWTRUE
  0x89: (m) => m.push(false), // NEWFALSE
  0x4b: (m) => m.push(m.number(1)), // BININT1
  0x4d: (m) => m.push(m.number(2)), // BININT2
  0x4a: (m) => m.push(m.integer(4)), // BININT
  0x8a: (m) => m.push(m.integer(m.number(1))), // LONG1
  0x47: (m) => m.push(m.double()), // BINFLOAT
  0x58: (m) => m.push(m.text(m.number(4))), // BINUNICODE
  0x29: (m) => m.push([]), // EMPTY_TUPLE
  0x74: (m) => m.push(m.popMarked()), // TUPLE
  0x85: (m) => m.push(m.popMany(1)), // TUPLE1
  0x86: (m) => m.push(m.popMany(2)), // TUPLE2
  0x87: (m) => m.push(m.popMany(3)), // TUPLE3
  0x5d: (m) => m.push([]), // EMPTY_LIST
  0x61: (m) => append(m, m.popMany(1)), // APPEND
  0x65: (m) => append(m, m.popMarked()), // APPENDS
  0x7d: (m) => m.push(new Map()), // EMPTY_DICT
  0x73: (m) => setItems(m, m.popMany(2)), // SETITEM
  0x75: (m) => setItems(m, m.popMarked()), // SETITEMS
  0x71: (m) => m.put(m.number(1)), // BINPUT
  0x72: (m) => m.put(m.number(4)), // LONG_BINPUT
  0x68: (m) => m.push(m.get(m.number(1))), // BINGET
  0x6a: (m) => m.push(m.get(m.number(4))), // LONG_BINGET
};
