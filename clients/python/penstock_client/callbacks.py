"""Callbacks for Keras, Lightning and the Hugging Face Trainer. A framework is imported by the function that makes its callback, and by nothing else here."""
from .learner import log


def _numbers(values):
    out = {}
    for name, value in (values or {}).items():
        if hasattr(value, "item"):
            try:
                value = value.item()
            except (TypeError, ValueError, RuntimeError):
                continue  # a tensor of several elements
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            out[name] = value
    return out


def _split(values, prefixes):
    """{"loss": 1, "val_loss": 2} → the training's and, without their prefix, the validation's."""
    train, other = {}, {}
    for name, value in values.items():
        prefix = next((p for p in prefixes if name.startswith(p)), None)
        (other if prefix else train)[name[len(prefix or ""):]] = value
    return train, other


def _tell(values, prefixes, **where):
    train, other = _split(_numbers(values), prefixes)
    for group, part in (("train", train), ("validation", other)):
        part = {k: v for k, v in part.items() if k not in ("step", "epoch", "group", "time", "penstock")}
        if part:
            log(part, group=group, **where)


def keras():
    """model.fit(…, callbacks=[keras()]): an evaluation an epoch."""
    import keras as framework

    class Penstock(framework.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            _tell(logs, ("val_",), step=epoch + 1, epoch=epoch + 1)
    return Penstock()


def lightning():
    """Trainer(callbacks=[lightning()]): what was logged, at the end of each epoch."""
    try:
        from lightning.pytorch.callbacks import Callback
    except ImportError:
        from pytorch_lightning.callbacks import Callback

    class Penstock(Callback):
        def on_train_epoch_end(self, trainer, module):
            if trainer.is_global_zero:
                _tell(trainer.callback_metrics, ("val_", "valid_"), step=trainer.global_step, epoch=trainer.current_epoch + 1)
    return Penstock()


def transformers():
    """Trainer(callbacks=[transformers()]): each time that the Trainer logs."""
    from transformers import TrainerCallback

    class Penstock(TrainerCallback):
        def on_log(self, args, state, control, logs=None, **_):
            if state.is_world_process_zero:
                _tell(logs, ("eval_",), step=state.global_step, epoch=state.epoch)
    return Penstock()
