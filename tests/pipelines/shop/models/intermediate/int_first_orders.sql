{{ config(materialized='view') }}

with ranked as (

    select *, row_number() over (partition by customer_id order by ordered_at, order_id) as place
    from {{ ref('stg_orders') }}

)

select customer_id, order_id, ordered_on from ranked where place = 1
