/** Loads a model into the tab: the demo model, files of this computer, or a model of a hub. */
import { useSignal, type Signal } from '@preact/signals';
import type { JSX } from 'preact';
import { useEffect } from 'preact/hooks';
import {
  errorText,
  type CachedModel,
  type LoadProgress,
  type LoadSettings,
  type ModelLoader,
  type ModelSource,
} from '../backend/contract.js';
import type { Chat } from '../state/chat.js';
import { bytes } from '../state/metrics.js';
import { withField, type SettingsStore } from '../state/settings.js';
import { Dialog } from './dialog.js';

interface LoaderDialogProps {
  readonly chat: Chat;
  readonly settings: SettingsStore;
  readonly loader: ModelLoader;
  readonly onClose: () => void;
}

interface LoadState {
  readonly progress: Signal<LoadProgress | undefined>;
  readonly problem: Signal<string>;
  readonly controller: Signal<AbortController | undefined>;
}

export function LoaderDialog({ chat, settings, loader, onClose }: LoaderDialogProps): JSX.Element {
  const state: LoadState = {
    progress: useSignal(undefined),
    problem: useSignal(''),
    controller: useSignal(undefined),
  };
  const cached = useSignal<readonly CachedModel[]>([]);
  const refresh = async (): Promise<void> => {
    try {
      cached.value = await loader.cached();
    } catch (error) {
      state.problem.value ||= errorText(error);
    }
  };
  useEffect(() => void refresh(), []);
  const remove = async (name: string): Promise<void> => {
    await loader.remove(name).catch((error: unknown) => (state.problem.value = errorText(error)));
    await refresh();
  };
  const load = async (source: ModelSource): Promise<void> => {
    await chat.stop();
    const isLoaded = await loaded(loader, source, settings, state);
    await chat.refreshModels();
    // closed last, so that the next dialog knows the model
    if (isLoaded) onClose();
    else await refresh();
  };
  const isLoading = state.controller.value !== undefined;
  return (
    <Dialog title="Load a model" onClose={onClose}>
      <fieldset disabled={isLoading}>
        <button type="button" onClick={() => void load({ kind: 'demo' })}>
          Demo model (6 MB)
        </button>
        <label>
          A GGUF or safetensors file, or all files of a Hugging Face folder
          <input
            type="file"
            multiple
            onChange={({ currentTarget: { files } }) => void load({ kind: 'files', files: [...(files ?? [])] })}
          />
        </label>
        <HubForm settings={settings} onLoad={load} />
        <LoadFields settings={settings} />
        <CachedList models={cached.value} settings={settings} onLoad={load} onRemove={remove} />
      </fieldset>
      {isLoading && <Progress state={state} />}
      {state.problem.value !== '' && (
        <p class="problem" role="alert">
          {state.problem.value}
        </p>
      )}
      <IsolationNote />
    </Dialog>
  );
}

function IsolationNote(): JSX.Element | null {
  if (crossOriginIsolated) return null;
  return (
    <p>
      <small>
        This page is not cross-origin isolated, so models run on one thread. Reload it once it is available offline to
        use all threads.
      </small>
    </p>
  );
}

/** @returns whether the model was loaded */
async function loaded(
  loader: ModelLoader,
  source: ModelSource,
  settings: SettingsStore,
  { progress, problem, controller }: LoadState,
): Promise<boolean> {
  const current = new AbortController();
  controller.value = current;
  problem.value = '';
  try {
    const onProgress = (now: LoadProgress): void => {
      progress.value = now;
    };
    const { id } = await loader.load(source, settings.settings.value.load, onProgress, current.signal);
    settings.update({ model: id });
    return true;
  } catch (error) {
    problem.value = current.signal.aborted ? 'Canceled.' : errorText(error);
    return false;
  } finally {
    controller.value = undefined;
    progress.value = undefined;
  }
}

function Progress({ state: { progress, controller } }: { readonly state: LoadState }): JSX.Element {
  const { what = 'load', loadedBytes, totalBytes = 0 } = progress.value ?? {};
  const shown = loadedBytes === undefined ? '' : `${bytes(loadedBytes)} of ${bytes(totalBytes)}`;
  return (
    <div>
      <label>
        {what === 'download' ? 'Downloading' : 'Loading'} {shown}
        {loadedBytes === undefined ? <progress /> : <progress value={loadedBytes} max={totalBytes} />}
      </label>
      <button type="button" class="secondary" onClick={() => controller.value?.abort()}>
        Cancel
      </button>
    </div>
  );
}

function LoadFields({ settings }: Pick<LoaderDialogProps, 'settings'>): JSX.Element {
  const { load } = settings.settings.value;
  const change = <Name extends keyof LoadSettings>(name: Name, value: LoadSettings[Name] | undefined): void =>
    settings.update({ load: withField(load, name, value) });
  return (
    <details>
      <summary>Attention and context</summary>
      <label>
        Attention policy, such as sparq (default: dense)
        <input
          value={load.attention ?? ''}
          onChange={({ currentTarget: { value } }) => change('attention', value.trim() || undefined)}
        />
      </label>
      <label>
        Context in tokens (default: what the model was trained for)
        <input
          type="number"
          min={1}
          step={1}
          value={load.context ?? ''}
          onChange={({ currentTarget: input }) => change('context', input.value ? input.valueAsNumber : undefined)}
        />
      </label>
      <label>
        <input
          type="checkbox"
          role="switch"
          checked={load.keepsOthers ?? false}
          onChange={({ currentTarget: { checked } }) => change('keepsOthers', checked)}
        />
        Keep the loaded models for comparison
      </label>
    </details>
  );
}

interface HubFormProps {
  readonly settings: SettingsStore;
  readonly onLoad: (source: ModelSource) => Promise<void>;
}

function HubForm({ settings, onLoad }: HubFormProps): JSX.Element {
  const address = useSignal('');
  const { hubEndpoint } = settings.settings.value;
  return (
    <div>
      <label>
        Model of a hub, such as owner/name or owner/name-GGUF:q4_k_m
        <input value={address.value} onInput={(event) => (address.value = event.currentTarget.value)} />
      </label>
      <label>
        Address of the hub
        <input
          type="url"
          value={hubEndpoint}
          onInput={(event) => settings.update({ hubEndpoint: event.currentTarget.value })}
        />
      </label>
      <button
        type="button"
        disabled={address.value.trim() === ''}
        onClick={() => void onLoad({ kind: 'hub', address: address.value.trim(), endpoint: hubEndpoint })}
      >
        Download and load
      </button>
    </div>
  );
}

interface CachedListProps extends HubFormProps {
  readonly models: readonly CachedModel[];
  readonly onRemove: (name: string) => Promise<void>;
}

function CachedList({ models, settings, onLoad, onRemove }: CachedListProps): JSX.Element | null {
  if (models.length === 0) return null;
  const { hubEndpoint: endpoint } = settings.settings.value;
  return (
    <>
      <h3>Downloaded</h3>
      <ul>
        {models.map(({ name, isComplete, sizeBytes }) => (
          <li key={name}>
            <button type="button" class="quiet" onClick={() => void onLoad({ kind: 'hub', address: name, endpoint })}>
              {name}, {bytes(sizeBytes)}
              {!isComplete && ' so far: finish the download'}
            </button>
            <button type="button" class="quiet" aria-label={`Delete ${name}`} onClick={() => void onRemove(name)}>
              ✕
            </button>
          </li>
        ))}
      </ul>
    </>
  );
}
