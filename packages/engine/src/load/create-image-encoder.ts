/** The image encoder of a model that takes images, on the model's own backend. */
import type { VisionPart } from '@winnow/models';
import type { Executable, Program } from '@winnow/ops';
import type { ImageProcessor } from '@winnow/vision';
import { ImageEncoder } from '../images/image-encoder.js';
import type { DeviceRecovery } from '../memory/device-recovery.js';
import type { EngineHost } from './engine.js';
import type { ModelResources } from './resources.js';

interface WithImages {
  readonly description: { readonly vision?: VisionPart | undefined };
  readonly processor: ImageProcessor | undefined;
}

/** `undefined` for a model that takes no images. */
export function createImageEncoder(
  { description, processor }: WithImages,
  program: Program | undefined,
  { backend, buffers, executables }: ModelResources,
  deviceRecovery: DeviceRecovery,
  host: EngineHost,
): ImageEncoder | undefined {
  if (processor === undefined) return undefined;
  return new ImageEncoder({
    ...{ backend, buffers, deviceRecovery, processor, decode: host.decodeImage },
    vision: description.vision as VisionPart,
    executable: executables.get(program as Program) as Executable,
  });
}
