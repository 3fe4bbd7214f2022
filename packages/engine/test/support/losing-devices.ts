/** WebAssembly backends that lose their device at chosen moments, with memory that the host cannot map. */
import { createWasmBackend } from '@winnow/backend-wasm';
import type { Backend } from '@winnow/ops';
import { DeviceLostError } from '@winnow/tensor';

/** Counts over all devices. */
export interface Devices {
  readonly createBackend: () => Promise<Backend>;
  numCreated: number;
  numRuns: number;
  /** Loses the current device. */
  lose(): void;
}

export type Moment = 'run' | 'read' | 'write' | 'prepare';

/** Devices that are lost at each moment for which `losesAt` returns true. */
export function losingDevices(losesAt: (moment: Moment, devices: Devices) => boolean = () => false): Devices {
  let lose: () => void = () => undefined;
  const devices: Devices = {
    numCreated: 0,
    numRuns: 0,
    lose: () => lose(),
    async createBackend() {
      devices.numCreated++;
      const inner = await createWasmBackend({ numThreads: 1, maxMemoryBytes: 2 ** 27 });
      let failure: DeviceLostError | undefined;
      let onLost: (error: DeviceLostError) => void = () => undefined;
      const lost = new Promise<DeviceLostError>((resolve) => (onLost = resolve));
      lose = () => {
        failure ??= new DeviceLostError({ backend: 'test', reason: `device ${devices.numCreated} is gone` });
        onLost(failure);
      };
      const check = (moment: Moment): void => {
        if (losesAt(moment, devices)) lose();
        if (failure !== undefined) throw failure;
      };
      return {
        ...inner,
        lost,
        view: () => undefined,
        async read(...call) {
          check('read');
          await inner.read(...call);
        },
        async write(...call) {
          check('write');
          await inner.write(...call);
        },
        async prepare(program, options) {
          check('prepare');
          const executable = await inner.prepare(program, options);
          return {
            ...executable,
            async run(...call) {
              devices.numRuns++;
              check('run');
              await executable.run(...call);
              check('run'); // loses the results, too
            },
            async read(...call) {
              check('read');
              await executable.read(...call);
            },
          };
        },
      };
    },
  };
  return devices;
}

/** Loses the device once, in the given run. */
export function losesOnceIn(step: number): Devices {
  let isDue = true;
  return losingDevices((moment, { numRuns }) => {
    if (moment !== 'run' || numRuns !== step || !isDue) return false;
    isDue = false;
    return true;
  });
}
