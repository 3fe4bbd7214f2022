/** The state of a layer during calibration: arrays and numbers by name, so that a checkpoint is a copy of them. */
import type { PredictorKind } from '../sidecar/sidecar.js';
import type { CalibrationLayer } from './calibration-source.js';

export type FloatArray = Float32Array | Float64Array;

export class LayerState {
  readonly shape: CalibrationLayer;
  readonly kind: PredictorKind;
  readonly numbers: Map<string, number>;
  readonly arrays: Map<string, FloatArray>;

  constructor(
    shape: CalibrationLayer,
    kind: PredictorKind,
    numbers: Map<string, number> = new Map(),
    arrays: Map<string, FloatArray> = new Map(),
  ) {
    this.shape = shape;
    this.kind = kind;
    this.numbers = numbers;
    this.arrays = arrays;
  }

  number(name: string): number {
    return this.numbers.get(name) ?? 0;
  }

  /** The array of this name; zeros when it is new. */
  floats(name: string, length: number): Float32Array {
    let array = this.arrays.get(name);
    if (array === undefined) this.arrays.set(name, (array = new Float32Array(length)));
    return array as Float32Array;
  }

  /** As `floats`, in f64, for sums. */
  sums(name: string, length: number): Float64Array {
    let array = this.arrays.get(name);
    if (array === undefined) this.arrays.set(name, (array = new Float64Array(length)));
    return array as Float64Array;
  }

  delete(...names: readonly string[]): void {
    for (const name of names) this.arrays.delete(name);
  }
}
