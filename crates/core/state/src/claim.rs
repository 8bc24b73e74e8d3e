//! Adapters of the rules of claims, which are in `caravan-volumes`.

use caravan_types::UnixNanos;
use caravan_types::command::{ClaimStep, Refusal};
use caravan_types::volume::{Claim, Volume};

/// Returns the claim after a step, or a refusal if the step is not legal in its phase.
pub(crate) fn step(claim: &Claim, step: &ClaimStep, now: UnixNanos) -> Result<Claim, Refusal> {
    Ok(caravan_volumes::claim::step(claim, step, now)?)
}

/// Returns the claim as granted to an allocation: a new claim, or another one after an earlier claim has ended.
/// Refuses a claim that conflicts with the claims that hold the volume's storage. Also refuses it if the storage
/// belongs to another volume; `twins` are the other rows of that storage.
pub(crate) fn grant(
    volume: &Volume,
    twins: &[&Volume],
    holding: &[&Claim],
    previous: Option<&Claim>,
    desired: Claim,
    now: UnixNanos,
) -> Result<Claim, Refusal> {
    let claim = caravan_volumes::claim::reserve(previous, desired, now)
        .map_err(|reason| Refusal::ClaimRefused(reason.to_string()))?;
    caravan_volumes::modes::sole(volume, twins)
        .and_then(|()| caravan_volumes::modes::admit(volume, holding, &claim))
        .map_err(|reason| Refusal::ClaimRefused(reason.to_string()))?;
    Ok(claim)
}
